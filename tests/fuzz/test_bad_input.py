"""Bad input through one door: every command, every public function, every kind of value."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import calls, commands
from tests.fuzz.desk import make_desk
from tests.helpers.studies import line
from tests.limits import TIMES

CALLS, LINES = 18, 15
"""One in so many is tried; `make fuzz` tries more."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return make_desk(tmp_path_factory.mktemp("fuzz") / "desk")


def chosen(attempts, share):
    """A share of the attempts, always the same."""
    every = list(attempts)
    return random.Random(0).sample(every, min(len(every), TIMES * len(every) // share))


def test_bad_arguments_of_functions_are_refused_in_one_line(desk):
    tried = chosen(calls.attempts(desk), CALLS)
    faults = [calls.try_call(desk, name, attempt) for name, attempt in tried]
    print(f"{len(tried)} bad calls tried, {sum(map(bool, faults))} ended badly")
    assert [str(fault) for fault in faults if fault] == []
    assert len(tried) > 200


def test_bad_command_lines_are_refused_in_one_line(desk):
    tried = chosen(commands.attempts(desk), LINES)
    faults = [commands.try_command(desk, line) for line in tried]
    print(f"{len(tried)} bad command lines tried, {sum(map(bool, faults))} ended badly")
    assert [str(fault) for fault in faults if fault] == []
    assert len(tried) > 50


def test_what_is_sound_is_no_fault(desk):
    """Otherwise the tests above might only show that everything is refused."""
    for name in ("read_corpus", "load", "anatomy", "score_patterns", "Run.why"):
        (call,) = (call for call in calls.calls(desk) if call.name == name)
        fault = calls.try_call(desk, name, lambda call=call: call.function(**call.arguments))
        assert "was taken as if it were sound" in str(fault)
    for command in ("heads", "why", "anatomy", "compare"):
        fault = commands.try_command(desk, line(command, *commands.sound(desk)[command]))
        assert "ended with 0" in str(fault)
