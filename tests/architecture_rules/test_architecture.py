"""The package keeps the shape that makes it readable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture_rules.measure import (
    Module,
    arguments,
    broken_rules,
    circle,
    functions,
    length,
    modules,
    public,
)

PROJECT = Path(__file__).parents[2]
LONG_FUNCTION, MANY_ARGUMENTS = 40, 6


@pytest.fixture(scope="module")
def found() -> dict[str, Module]:
    return modules()


def test_no_modules_import_one_another_in_a_circle(found):
    assert circle(found) == []


def test_no_room_knows_one_that_it_must_not_know(found):
    assert broken_rules(found) == []


def test_functions_are_short(found):
    lengths = {f"{module.name}.{each.name}": length(each) for module, each in functions(found)}
    long = [name for name, lines in lengths.items() if lines > LONG_FUNCTION]
    assert len(long) <= 0.015 * len(lengths), long


def test_few_functions_have_more_than_six_arguments(found):
    many = [
        f"{module.name}.{each.name}"
        for module, each in functions(found)
        # arguments of commands and of checked functions are options, fields of a model
        if arguments(each) > MANY_ARGUMENTS
        and not (module.name.startswith("cli") and each.decorator_list)
        and not {"checked", "study(STUDY)"} & {*map(ast.unparse, each.decorator_list)}
    ]
    assert len(many) <= 5, many


def test_public_names_have_a_docstring(found):
    names = [(module.name, each) for module in found.values() for each in public(module)]
    bare = [f"{module}.{each.name}" for module, each in names if not ast.get_docstring(each)]
    assert len(bare) <= 0.05 * len(names), bare


def imported(code: str) -> set[str]:
    """The modules that some lines of Python import."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or ".")
    return names


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
