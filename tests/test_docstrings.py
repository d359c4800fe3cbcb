"""The examples in docstrings are true, and there are enough of them to learn from."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "headscope").rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]
# one process for all, as a user runs them: without the checks of types and shapes of this process
RUN = """
import doctest, importlib, sys
runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
for name in sys.argv[1:]:
    for test in doctest.DocTestFinder().find(importlib.import_module(name)):
        if test.examples:
            failed = runner.run(test).failed
            print("failed" if failed else "true", test.name)
"""


def verdicts(place: Path, *modules: str) -> tuple[dict[str, str], str]:
    """Whether the examples of each name are true, and all that was said."""
    path = os.pathsep.join((str(place), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", RUN, *modules], cwd=place, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"^(true|failed) (\S+)$", done.stdout, flags=re.MULTILINE)
    return {name: verdict for verdict, name in lines}, done.stdout


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> tuple[dict[str, str], str]:
    return verdicts(tmp_path_factory.mktemp("examples"), *MODULES)


def test_every_example_is_true(told):
    found, output = told
    assert "failed" not in found.values(), output


@pytest.mark.parametrize("module", MODULES)
def test_an_example_stands_where_it_is_found(told, module):
    """Not in a comment, nor in the docstring of something that doctest does not see."""
    assert any(name.startswith(module) for name in told[0])


def test_thirty_names_and_more_show_an_example(told):
    assert len(told[0]) >= 30


def test_a_wrong_example_is_noticed(tmp_path):
    (tmp_path / "odd.py").write_text('def one():\n    """\n    >>> 1 + 1\n    3\n    """\n')
    assert verdicts(tmp_path, "odd")[0] == {"odd.one": "failed"}
