"""A line end in the name of a model, a text or a run starts no line of what is printed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

EVIL = "a\nEVIL\x1b[2J\u202e"


@pytest.fixture(scope="module")
def desk(gpt2_folder, tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("desk")
    shutil.copytree(gpt2_folder, home / f"m{EVIL}")
    (home / f"t{EVIL}.txt").write_text("The old keys were in the house and she told them. " * 40)
    (home / f"bad{EVIL}.conllu").write_text("one\ttwo\n")
    (home / f"empty{EVIL}").mkdir()
    return home


RUN, MODEL, TEXT = f"r{EVIL}", f"m{EVIL}", f"t{EVIL}.txt"
CLASSIFY = ("--types", "positional", "--quick", "--max-tokens", "500", "--overwrite")
LINES = {
    "classify": ("classify", MODEL, "--corpus", TEXT, "--out", RUN, *CLASSIFY),
    "classify into runs": ("classify", MODEL, "--corpus", TEXT, *CLASSIFY),
    "heads": ("heads", RUN),
    "why": ("why", RUN, "L0H0"),
    "show": ("show", RUN, "L0H0", "the old keys"),
    "report": ("report", RUN, "--out", f"page{EVIL}.html", "--overwrite"),
    "compare": ("compare", RUN, RUN),
    "weights": ("study", "weights", MODEL, "--out", f"w{EVIL}.csv", "--overwrite"),
    "no corpus": ("classify", MODEL, "--corpus", f"bad{EVIL}.conllu"),
    "no model": ("classify", f"empty{EVIL}"),
    "no run": ("heads", f"empty{EVIL}"),
    "no head": ("why", RUN, "L9H9"),
    "a run that is there": ("classify", MODEL, "--corpus", TEXT, "--out", RUN, *CLASSIFY[:-1]),
}


@pytest.mark.parametrize("line", LINES)
def test_no_name_breaks_a_line(line, desk, command, monkeypatch):
    monkeypatch.chdir(desk)
    if not (desk / RUN).is_dir():
        assert command(*LINES["classify"])[0] in (0, None)
    code, *printed = command(*LINES[line])
    assert (code == 2) == (line.startswith(("no ", "a ")))
    for text in printed:
        assert not set(text) & {"\x1b", "\u202e"}
        assert not [row for row in text.splitlines() if row.startswith("EVIL")], text
