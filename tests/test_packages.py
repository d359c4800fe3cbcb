"""Optional packages are imported in one module; everything else is a dependency."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from headscope.errors import HeadscopeError
from headscope.packages import EXTRAS, optional_package

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"pyyaml": "yaml"}
"""Names of modules that differ from their distribution's."""


def sources() -> list[tuple[str, ast.Module]]:
    paths = sorted((ROOT / "headscope").rglob("*.py"))
    return [(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())) for path in paths]


def module_of(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)[0].lower()
    return MODULES.get(name, name.replace("-", "_"))


def imports(tree: ast.Module) -> set[str]:
    """The packages that a module imports, wherever it does."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_what_is_imported_is_a_dependency_or_comes_with_an_extra_that_is_asked_for():
    plain = {*map(module_of, PROJECT["dependencies"]), *sys.stdlib_module_names, "headscope"}
    plain.add("tokenizers")  # of which transformers consists
    other = {(name, package) for name, tree in sources() for package in imports(tree) - plain}
    # each is imported by one module, which is loaded where the package is known to be there
    processes, widget = "headscope/studies/sweep.py", "headscope/serve/head_widget.py"
    assert other == {(processes, "ray"), (widget, "anywidget"), (widget, "traitlets")}


def test_the_extras_that_are_advised_bring_their_packages():
    for package, extra in EXTRAS.items():
        assert package in map(module_of, PROJECT["optional-dependencies"][extra])


def test_a_package_that_cannot_be_imported_is_named_with_the_command_that_installs_it(
    tmp_path, monkeypatch
):
    (tmp_path / "ray.py").write_text("raise RuntimeError('made for another torch')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(HeadscopeError, match=r"headscope\[ray"):
        optional_package("x", "ray")
    assert optional_package("x", "json").loads("1") == 1
