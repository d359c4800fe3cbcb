"""The package keeps the shape that makes it readable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
ROOT = PROJECT / "headscope"
ROOMS = tuple(
    (
        "corpus stimuli relations models causal measure statistics runs resolve text_patterns "
        "views studies serve"
    ).split()
)
"""No room knows one that stands behind it.

Nothing but the entry points knows `cli`; `run` and `classification` are known to studies alone.
`resolve` opens the model of a run: only rooms behind it do that.
"""
UNKNOWN = {("models", "relations"), ("statistics", "models")}
"""Further pairs of rooms whose first does not know the second."""
TYPES = ["relations", "types"]
"""Where a head type is a file: only studies and other types may know one by its name."""
SWEEPS = ("sweep", "emergence", "languages")
MAY_CLASSIFY = (*SWEEPS, "why")
"""The studies that run `classify`; no other study knows the rooms above it."""
TOP = ("run", "classification", "from_patterns")

LONG_FUNCTION, MANY_ARGUMENTS = 40, 6

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """A file of the package: its name without `headscope.`, its tree, and what it imports."""

    name: str
    tree: ast.Module
    imports: set[str] = field(default_factory=set)


def modules() -> dict[str, Module]:
    """Every module by its name; imports inside functions count, those for type checkers do not."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__")
        name = name.rstrip(".")
        found[name] = Module(name, ast.parse(path.read_text(encoding="utf-8")))
    for module in found.values():
        module.imports = {
            target
            for target in _imports(module, found)
            if target in found and target != module.name
        }
    return found


def _imports(module: Module, found: dict[str, Module]) -> Iterator[str]:
    hidden = {
        id(inner)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import) and id(node) not in hidden:
            yield from (_inner(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and id(node) not in hidden:
            # a name of a package is a module of it, or comes from its __init__
            for alias in node.names:
                whole = _inner(f"{node.module}.{alias.name}")
                yield whole if whole in found else _inner(node.module or "")


def _inner(name: str) -> str:
    return name.removeprefix("headscope").removeprefix(".") if name.startswith("headscope") else "?"


def broken_rules(found: dict[str, Module]) -> list[str]:
    """Every import that a room must not have, as `importer -> imported`."""
    return [
        f"{module.name} -> {target}"
        for module in found.values()
        for target in sorted(module.imports)
        if _forbidden(module.name, target)
    ]


def _forbidden(name: str, target: str) -> bool:
    own, other = name.split("."), target.split(".")
    if other[0] == "cli":
        return own[0] not in ("cli", "__main__")
    if own[0] == "studies" and other[0] != "serve":
        if other[0] in TOP:
            return own[1:2] != [] and own[1] not in MAY_CLASSIFY
        return other[0] == "studies" and len(own) > 1 and not _one_study(own[1], other[1])
    if own[0] not in ROOMS:
        return False
    if other[:2] == TYPES and len(other) == 3 and own[:2] != TYPES:
        return True
    if (own[0], other[0]) in UNKNOWN or other[0] in TOP:
        return True
    return other[0] in ROOMS[ROOMS.index(own[0]) + 1 :]


def _one_study(name: str, target: str) -> bool:
    """True for the files of one study, for sweeps, and for the declaration that all studies use."""
    one, other = name.partition("_")[0], target.partition("_")[0]
    return one == other or {one, other} <= {*SWEEPS} or target in ("study", "study_table")


def circle(found: dict[str, Module]) -> list[str]:
    """Modules that import one another, if there are any."""
    try:
        TopologicalSorter({module.name: module.imports for module in found.values()}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def functions(found: dict[str, Module]) -> Iterator[tuple[Module, Function]]:
    """Every function and method."""
    for module in found.values():
        for node in ast.walk(module.tree):
            if isinstance(node, Function):
                yield module, node


def length(function: Function) -> int:
    """Lines of code of a function: without its docstring, comments and blank lines."""
    lines = {function.lineno}
    for statement in function.body[ast.get_docstring(function) is not None :]:
        for node in ast.walk(statement):
            if isinstance(node, ast.expr | ast.stmt):
                lines |= {node.lineno, node.end_lineno or node.lineno}
    return len(lines)


def arguments(function: Function) -> int:
    """Arguments of a function, `self` and `cls` left out."""
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return sum(name.arg not in ("self", "cls") for name in named)


def public(module: Module) -> Iterator[ast.ClassDef | Function]:
    """Public functions, classes and their public methods."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            yield node
            inner = node.body if isinstance(node, ast.ClassDef) else []
            yield from (
                own for own in inner if isinstance(own, Function) and not own.name.startswith("_")
            )


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


def test_no_path_is_resolved_by_pathlib():
    """`Path.resolve` raises a RuntimeError for a loop of links; `headscope.paths` does not."""
    calls = [
        f"{path}:{node.lineno}"
        for path in sorted((PROJECT / "headscope").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "resolve"
    ]
    assert not calls


def test_no_test_file_imports_another():
    """Code that tests share is a module of its own: a moved test breaks no other."""
    for path in sorted((PROJECT / "tests").rglob("*.py")):
        names = imported(path.read_text(encoding="utf-8"))
        last = {name.rpartition(".")[2] for name in names if name.startswith("tests.")}
        assert not [n for n in last if n.startswith("test_") or n == "conftest"], path
