"""Lists inside of files are as the code has them: `python docs/generate.py` changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
sys.path.insert(0, str(PROJECT / "docs"))

from generate import INDEX_FILE, LISTS, with_lists  # noqa: E402


@pytest.mark.parametrize("name", [INDEX_FILE, *LISTS])
def test_generation_changes_nothing(name):
    assert with_lists(name) == (PROJECT / name).read_text(encoding="utf-8")
