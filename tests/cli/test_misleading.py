"""Numbers that no machine holds and paths that name nothing, in every command that takes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fuzz.commands import Parameter, parameters, sound
from tests.fuzz.desk import make_desk
from tests.helpers.shell import headscope
from tests.helpers.studies import FUNCTIONS, line

DIGITS = "9" * 23
TOO_LARGE = f"is {DIGITS}; it should be "
FOLDERS = ("classify", "gallery", "headvis", "languages", "pack", "sweep")
"""Commands whose --out is a folder."""
OTHER_WORDS = {("serve", "--port")}
"""Options whose bad value gets a message of its own."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return make_desk(tmp_path_factory.mktemp("desk") / "desk")


@pytest.fixture
def run(desk):
    """A command line on the desk; its exit code and what it said on stderr, on one line."""

    def call(*words: str) -> tuple[int, str]:
        with desk.guarded() as changed:
            done = headscope(*words)
        assert changed == []
        return done.returncode, " ".join(done.stderr.split())

    return call


def options(*kinds: type) -> list[tuple[str, Parameter]]:
    """Every option of these kinds, with its command."""
    found = []
    for name, function in FUNCTIONS.items():
        taken = parameters(function)
        found += [(name, each) for each in taken if each.flag and each.kind in kinds]
    return found


def test_a_whole_number_of_too_many_digits_is_refused_by_its_size_in_every_command(desk, run):
    tried = [each for each in options(int) if (each[0], each[1].flag) not in OTHER_WORDS]
    for name, option in tried:
        code, said = run(*line(name), *sound(desk)[name], option.flag, DIGITS)
        assert code == 2, (name, option)
        assert TOO_LARGE in said, (name, option, said)
        assert re.search(r"less than or equal to (64|9223372036854775807)$", said), (name, said)
    assert len(tried) > 30


@pytest.mark.parametrize("name", FOLDERS)
def test_the_root_is_no_folder_of_results(desk, run, name):
    code, said = run(*line(name), *sound(desk)[name], "--out", "/")
    assert (code, said[:11]) == (2, "headscope: ")


@pytest.mark.parametrize("path", ["/", ".", "..", "", "runs/.."])
def test_a_path_that_names_no_file_is_refused_in_every_command_that_writes_one(desk, run, path):
    files = [
        (name, each)
        for name, each in options(Path)
        if each.name in ("out", "figure", "html") and (name, each.name) not in
        {(folder, "out") for folder in FOLDERS}
    ]  # fmt: skip
    for name, option in files:
        code, said = run(*line(name), *sound(desk)[name], option.flag, path)
        assert code == 2, (name, option)
        expected = f"headscope: {Path(path)} is a folder and names no file; name one that ends in ."
        assert said.startswith(expected), (name, option, said)
    assert len(files) > 20


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("path", [".", "..", ""])
def test_the_working_folder_is_not_replaced_by_results(desk, run, name, path):
    code, said = run(*line(name), *sound(desk)[name], "--out", path)
    assert code == 2
    assert "is the working folder or holds it" in said or "holds other files and no sweep" in said
