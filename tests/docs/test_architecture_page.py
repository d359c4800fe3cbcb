"""The page of the architecture names files and functions that are there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
FILES = 20
"""Files that suffice to say where attention is read and how a tag comes about."""


def test_the_walk_of_a_run_names_what_is_there():
    stations = re.findall(r"^- `([\w/]+)\.py`: `(\w+)`", PAGE, re.MULTILINE)
    modules = {path: import_module("headscope." + path.replace("/", ".")) for path, _ in stations}
    assert len(modules) == FILES
    assert [row for row in stations if not hasattr(modules[row[0]], row[1])] == []


def test_every_file_that_the_page_names_is_there():
    paths = set(re.findall(r"`(?:headscope/)?(\w+(?:/\w+)*\.py)`", PAGE))
    there = [path for path in paths if (ROOT / path).is_file()]
    there += [path for path in paths if any(ROOT.glob(f"headscope/**/{path}"))]
    assert sorted(paths) == sorted(there)
