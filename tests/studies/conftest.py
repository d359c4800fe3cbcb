"""A run that tests of studies only read."""

from __future__ import annotations

from pathlib import Path

import pytest

import headscope as hs


@pytest.fixture(scope="session")
def small_run(gpt2_folder, story, tmp_path_factory) -> Path:
    """Folder of a run of a small model on `story`."""
    folder = tmp_path_factory.mktemp("studies") / "run"
    types = ["positional", "delimiter"]
    options = {"types": types, "examples": False, "keep_sums": True}
    hs.classify(gpt2_folder, story, out=folder, **options)
    return folder
