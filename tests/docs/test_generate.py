"""Lists inside of files are as the code has them: `python docs/generate.py` changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
sys.path.insert(0, str(PROJECT / "docs"))

from generate import LISTS, with_lists  # noqa: E402


@pytest.mark.parametrize("name", LISTS)
def test_generation_changes_nothing(name):
    assert with_lists(name) == (PROJECT / name).read_text(encoding="utf-8")


def test_a_list_that_the_code_has_otherwise_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("generate.PROJECT", tmp_path)
    name = "docs/head_types.md"
    text = (PROJECT / name).read_text(encoding="utf-8")
    page = tmp_path / name
    page.parent.mkdir()
    page.write_text(text.replace("| sink |", "| drain |"), encoding="utf-8")
    assert with_lists(name) == text
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{name} has no marks of types"):
        with_lists(name)
