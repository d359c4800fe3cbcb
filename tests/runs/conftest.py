"""What tests of run folders share."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest


@pytest.fixture
def old(tmp_path) -> Path:
    """A run and its causes as headscope wrote them before `run.json` vouched for both."""
    with tarfile.open(Path(__file__).with_name("run_of_0.1.0.tar.gz")) as packed:
        packed.extractall(tmp_path / "old", filter="data")
    return tmp_path / "old"
