"""A skip that was not foreseen fails the run where CI is set, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KINDS = {
    "in a test": "import pytest\ndef test_a():\n    pytest.skip({reason!r})\n",
    "by a mark": "import pytest\n@pytest.mark.skip(reason={reason!r})\ndef test_a():\n    pass\n",
    "of a file": "import pytest\npytest.skip({reason!r}, allow_module_level=True)\n",
}


def run(folder: Path, text: str, ci: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_odd.py").write_text(text + "\ndef test_b():\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.skips", *options, "test_odd.py"]
    environment = os.environ | {"CI": ci, "PYTHONPATH": str(ROOT)}
    environment = {k: v for k, v in environment.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("workers", [["-p", "no:xdist"], ["-n", "1"]], ids=["alone", "xdist"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_skip_that_was_not_foreseen_fails_and_is_named(tmp_path, kind, workers):
    done = run(tmp_path, KINDS[kind].format(reason="the moon is full"), "true", *workers)
    assert done.returncode == 1
    (line,) = (line for line in done.stdout.splitlines() if line.endswith(": the moon is full"))
    assert line.startswith("test_odd.py")


@pytest.mark.parametrize(("reason", "ci"), [("needs a GPU", "true"), ("the moon is full", "")])
def test_a_foreseen_skip_passes_and_so_does_any_at_home(tmp_path, reason, ci):
    done = run(tmp_path, KINDS["in a test"].format(reason=reason), ci, "-p", "no:xdist")
    assert done.returncode == 0, done.stdout
