"""The examples in docstrings are true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# one process for all, as a user runs them: without the checks of types and shapes of this process
RUN = """
import doctest, importlib, sys
results = [doctest.testmod(importlib.import_module(name)) for name in sys.argv[1:]]
print(sum(result.failed for result in results), sum(result.attempted > 0 for result in results))
"""


def test_every_example_is_true(tmp_path):
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((ROOT / "headscope").rglob("*.py"))
        if ">>>" in path.read_text(encoding="utf-8")
    ]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *modules], cwd=tmp_path, capture_output=True, text=True, check=False
    )  # fmt: skip
    # an example that doctest does not see, as in a comment, would be no example of its module
    assert done.stdout.split("\n")[-2] == f"0 {len(modules)}", done.stdout + done.stderr
