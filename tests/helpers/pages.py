"""The project's Markdown pages, as git tracks them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
if not (PROJECT / ".git").exists():
    pytest.skip("tracked files are known in a checkout only", allow_module_level=True)
TRACKED = set(
    subprocess.run(
        ["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
)
TEMPLATES = {"data/atlas/card.md"}
PAGES = sorted(name for name in TRACKED - TEMPLATES if name.endswith(".md"))
