"""Examples in docstrings are true, and names in docstrings exist."""

from __future__ import annotations

import pkgutil
import re
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
        [sys.executable, "-c", RUN, *modules],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    # an example that doctest does not see, as in a comment, would be no example of its module
    assert done.stdout.split("\n")[-2] == f"0 {len(modules)}", done.stdout + done.stderr


def exists(name: str) -> bool:
    """True for a module, or an attribute or a field of something in it."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        parent, _, field = name.rpartition(".")
        return field in getattr(pkgutil.resolve_name(parent), "__annotations__", ())
    return True


def test_every_name_of_the_package_in_a_docstring_exists():
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "headscope").rglob("*.py")]
    names = set(re.findall(r"`(headscope(?:\.\w+)+)`", "".join(texts)))
    assert len(names) > 50
    # the last is the group of entry points
    assert [name for name in sorted(names) if not exists(name)] == ["headscope.types"]
