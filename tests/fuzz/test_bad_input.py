"""Bad input on the command line: every command, every option, every kind of value."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import commands
from tests.fuzz.desk import make_desk
from tests.helpers.studies import line
from tests.limits import TIMES

LINES = 15
"""One in so many is tried; `make fuzz` tries more."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory, mini_run):
    return make_desk(tmp_path_factory.mktemp("fuzz") / "desk", mini_run)


def test_bad_command_lines_are_refused_in_one_line(desk):
    every = list(commands.attempts(desk))
    tried = random.Random(0).sample(every, min(len(every), TIMES * len(every) // LINES))
    tried += [line for line in every if "pipe" in line and line not in tried]  # it never ends
    faults = [commands.fault_of(desk, line) for line in tried]
    print(f"{len(tried)} bad command lines tried, {sum(map(bool, faults))} ended badly")
    assert [fault for fault in faults if fault] == []
    assert len(tried) > 50


def test_what_is_sound_is_no_fault(desk):
    """Otherwise the test above might only show that everything is refused."""
    for command in ("heads", "why", "anatomy", "compare"):
        fault = commands.fault_of(desk, line(command, *commands.sound(desk)[command]))
        assert "ended with 0" in fault
