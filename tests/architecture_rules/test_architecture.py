"""The package keeps the shape that makes it readable; `measure` prints the same figures."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from tests.architecture_rules.measure import Figures, figures

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> Figures:
    return figures()


def test_no_modules_import_one_another_in_a_circle(found):
    assert found.circles == []


def test_no_room_knows_one_that_it_must_not_know(found):
    assert found.broken == []


def test_functions_are_short(found):
    assert len(found.long_functions) <= 0.015 * found.functions, found.long_functions


def test_few_functions_have_more_than_six_arguments(found):
    assert len(found.many_arguments) <= 8, found.many_arguments


def test_public_names_have_a_docstring(found):
    assert len(found.undocumented) <= 0.05 * found.public, found.undocumented


def test_docstrings_show_examples(found):
    assert found.examples >= 30


def imported(code: str) -> set[str]:
    """The modules that some lines of Python import."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or ".")
    return names


def inner(code: str) -> set[str]:
    return {name for name in imported(code) if name.startswith("headscope.")}


def test_the_readme_imports_headscope_alone():
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert any("headscope" in imported(block) for block in blocks)
    assert set().union(*map(inner, blocks)) == set()


def test_the_notebooks_import_no_inner_module():
    paths = sorted((PROJECT / "notebooks").glob("*.ipynb"))
    assert paths
    used = set()
    for path in paths:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            if cell["cell_type"] == "code":
                lines = "".join(cell["source"]).splitlines()
                used |= inner("\n".join(line for line in lines if line[:1] not in ("%", "!")))
    assert not used


def test_one_place_resolves_paths():
    """`Path.resolve` says of a loop of links what nobody expects: `headscope.paths` alone calls it."""
    calls = [
        f"{path}:{node.lineno}"
        for path in sorted((PROJECT / "headscope").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "resolve"
    ]
    assert [call.rpartition(":")[0] for call in calls] == [
        str(PROJECT / "headscope" / "paths.py")
    ], calls


def test_no_test_file_imports_another():
    """What tests share is a module of its own: a moved test breaks no other."""
    for path in sorted((PROJECT / "tests").rglob("*.py")):
        names = imported(path.read_text(encoding="utf-8"))
        last = {name.rpartition(".")[2] for name in names if name.startswith("tests.")}
        assert not [n for n in last if n.startswith("test_") or n == "conftest"], path
