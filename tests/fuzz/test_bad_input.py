"""Bad input on the command line: every command, every option, every kind of value."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import commands
from tests.fuzz.desk import make_desk
from tests.helpers.shell import headscope
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


def test_every_faulty_file_is_refused_by_its_name(desk):
    """A line is not refused for another reason: the file alone is wrong with it."""
    tried = 0
    for command, function in commands.FUNCTIONS.items():
        for parameter in commands.parameters(function):
            for file in commands.FAULTY_FILES.get(parameter.name, ()):
                base = commands.sound(desk)[command]
                # a table is read beside no other option
                words = base if parameter.name in ("programs", "tasks") else base[:1]
                call = line(command, *words, parameter.flag, file)
                if not parameter.flag:  # prompts come behind the model
                    call = line(command, base[0], file, *base[2:])
                assert commands.fault_of(desk, call) == ""
                with desk.guarded():
                    told = headscope(*call).stderr
                assert file.partition(".")[0] in told, told
                tried += 1
    assert tried > 50


def test_what_is_sound_is_no_fault(desk):
    """Otherwise the test above might only show that everything is refused."""
    for command in ("heads", "why", "anatomy", "compare"):
        fault = commands.fault_of(desk, line(command, *commands.sound(desk)[command]))
        assert "ended with 0" in fault
