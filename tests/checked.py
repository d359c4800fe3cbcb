"""Every call within `headscope` is checked by beartype while tests run: `pytest -p tests.checked`.

jaxtyping's own hook, `--jaxtyping-packages`, checks the same and gives longer messages, but looks
at all arguments twice and binds them in Python: half of what the tests took. Here each function is
checked once, within jaxtyping's context for the names of axes where its hints speak of shapes.

Of a function that is called ten thousand times in a test, hardly any call says what the first did not:
the first calls of each test are checked, and of the others some.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import partial, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, get_args, get_type_hints
from unittest.mock import patch

import pytest
from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped

PACKAGE = "headscope"
FIRST, EVERY = 20, 50
"""Calls of a function that are checked in each test, and one in so many after them."""


class Turns:
    """The calls since a test began, and which of them are checked."""

    test = 0

    def __init__(self) -> None:
        self.of, self.calls = -1, 0

    def come(self) -> bool:
        if self.of != Turns.test:
            self.of, self.calls = Turns.test, 0
        self.calls += 1
        return self.calls <= FIRST or self.calls % EVERY == 0


_inner = defaultdict[CodeType, Turns](Turns)
"""Those of functions that are made anew whenever the function around them is called."""


def pytest_load_initial_conftests() -> None:
    """Before the first conftest.py imports what is to be checked."""
    if PACKAGE in sys.modules:
        raise RuntimeError(f"{PACKAGE} was imported before its calls could be checked")
    sys.meta_path.insert(0, Finder(PACKAGE))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    begin()


def begin() -> None:
    """Let the next calls of each function be the first again."""
    Turns.test += 1


def checked(made: Any) -> Any:
    """A function, or what a dataclass is made by, with a check of each argument and result."""
    if inspect.isclass(made):
        if is_dataclass(made) and "__init__" in vars(made):
            made.__init__ = checked(made.__init__)
        return made
    if isinstance(made, (classmethod, staticmethod)):
        return type(made)(checked(made.__func__))
    if isinstance(made, property):
        return property(*(part and checked(part) for part in (made.fget, made.fset, made.fdel)))
    if not inspect.isfunction(made) or getattr(made, "__no_type_check__", False):
        return made
    if not _inner[made.__code__].come():
        return made
    if inspect.isgeneratorfunction(made):
        # beartype would look at the arguments when the first value is asked for, out of context
        return wraps(made)(_sampled(made, jaxtyped(made, typechecker=beartype)))
    hints = _hints_of(made)
    typed: Callable[..., Any] = beartype(_with_hints(made, hints))
    if inspect.iscoroutinefunction(made):
        return wraps(made)(typed)
    if any(map(_speaks_of_shapes, hints.values())):
        typed = _in_context(typed)
    return wraps(made)(_sampled(made, typed))


def _sampled(made: Callable[..., Any], typed: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, but for the calls whose turn it is to be checked."""
    turns = Turns()

    def call(*args: Any, **kwargs: Any) -> Any:
        return typed(*args, **kwargs) if turns.come() else made(*args, **kwargs)

    return call


def _hints_of(function: FunctionType) -> dict[str, Any]:
    """Hints as types; Any for what is only imported for a type checker, or local to a function."""
    found = {}
    for name, hint in function.__annotations__.items():
        # one at a time, so that one unknown name hides no other hint
        alone = FunctionType(_nothing.__code__, function.__globals__)
        alone.__annotations__ = {name: hint}
        try:
            found[name] = get_type_hints(alone, include_extras=True)[name]
        except Exception:  # an annotation is code, and may fail in any way
            found[name] = Any
    return found


def _nothing() -> None: ...


def _with_hints(function: FunctionType, hints: dict[str, Any]) -> FunctionType:
    """A copy, so that whoever reads the annotations still sees what was written."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    copy.__annotations__ = hints
    return copy


def _speaks_of_shapes(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    inner = [part for arg in get_args(hint) for part in (arg if isinstance(arg, list) else [arg])]
    return any(map(_speaks_of_shapes, inner))


def _in_context(typed: Callable[..., Any]) -> Callable[..., Any]:
    """An axis of one name has one length from the arguments to the result."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with jaxtyped("context"):
            return typed(*args, **kwargs)

    return call


class Decorate(ast.NodeTransformer):
    """Puts `checked` on every function, and on every class once `dataclass` has made it."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        first = 0
        while first < len(node.body) and _must_come_first(node.body[first]):
            first += 1
        node.body.insert(first, ast.Import([ast.alias(__name__, "_checking")]))
        self.generic_visit(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        if not any(_unchecked(decorator) for decorator in node.decorator_list):
            node.decorator_list.insert(0, _decorator(node))
            self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if not any(_unchecked(decorator) for decorator in node.decorator_list):
            # innermost: a decorator may hide the hints
            node.decorator_list.append(_decorator(node))
            self.generic_visit(node)
        return node


def _must_come_first(statement: ast.stmt) -> bool:
    """The docstring, and `from __future__`."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _unchecked(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id == "no_type_check"


def _decorator(place: ast.stmt) -> ast.expr:
    name = ast.parse("_checking.checked", mode="eval").body
    for node in ast.walk(name):
        ast.copy_location(node, place)
    return name


class Loader(SourceFileLoader):
    """Compiles a module with the checks, and keeps that apart from what is compiled without."""

    KEPT_AS = f"checked{hashlib.md5(Path(__file__).read_bytes()).hexdigest()}"

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        tree = compile(data, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True, optimize=_optimize)
        tree = ast.fix_missing_locations(Decorate().visit(tree))
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def get_code(self, fullname: str) -> CodeType | None:
        kept = partial(cache_from_source, optimization=self.KEPT_AS)
        # one import at a time holds the lock. It is put back before the code runs: what that
        # imports of other packages is kept compiled where it always is
        with patch("importlib._bootstrap_external.cache_from_source", kept):
            return super().get_code(fullname)


class Finder(MetaPathFinder):
    """Gives the modules of a package to the loader above."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.split(".")[0] != self.package:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec
