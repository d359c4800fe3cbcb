"""A skip that was not foreseen is a failure where CI is set, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ODD = """
import pytest
def test_a(): pytest.skip("the moon is full")
@pytest.mark.skip(reason="the moon is new")
def test_b(): pass
@pytest.mark.skip(reason="needs a GPU")
def test_c(): pass
"""


@pytest.mark.parametrize(
    ("ci", "end"), [("true", "1 failed, 1 skipped, 1 error"), ("", "3 skipped")]
)
def test_a_skip_that_was_not_foreseen_fails_where_ci_is_set(tmp_path, ci, end):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_odd.py").write_text(ODD)
    environment = os.environ | {"CI": ci, "PYTHONPATH": str(Path(__file__).parents[1])}
    environment = {k: v for k, v in environment.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.skips", "test_odd.py"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert end in done.stdout
