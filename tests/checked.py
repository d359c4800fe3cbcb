"""Calls within `headscope` are checked by beartype while tests run: `pytest -p tests.checked`.

jaxtyping's own hook, `--jaxtyping-packages`, checks every argument twice and needs names that
headscope imports for type checkers alone. Here each function is checked once, in jaxtyping's
context for the names of axes. Of a function that is called often, the first calls are checked and
one in fifty after them. The check is made when a function is first called: a process of tests calls
a small part of what it imports. A function in a function is new at each call of the outer one, and
so would be its check, which takes longer than most of their calls: fewer of them are checked.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import count
from types import CodeType, FunctionType, ModuleType
from typing import Any, get_type_hints

from beartype import beartype
from jaxtyping import jaxtyped

PACKAGE = "headscope"
FIRST, FIRST_WITHIN, EVERY = 50, 5, 50
CHECKED = "__checked__"
"""The name in each module of the decorator below."""

_numbers = defaultdict[CodeType, Iterator[int]](count)
"""Numbers of the calls of each function; one that is made in a function has them for all copies."""


def pytest_load_initial_conftests() -> None:
    """Before the first conftest.py imports what is to be checked."""
    if PACKAGE in sys.modules:
        raise RuntimeError(f"{PACKAGE} was imported before its calls could be checked")
    sys.meta_path.insert(0, Finder(PACKAGE))


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
    if not inspect.isfunction(made):
        return made
    if inspect.iscoroutinefunction(made) or inspect.isgeneratorfunction(made):
        return made  # its body runs later, in another context
    numbers = _numbers[made.__code__]
    first = FIRST_WITHIN if "<locals>" in made.__qualname__ else FIRST
    typed: Callable[..., Any] | None = None

    @wraps(made)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal typed
        number = next(numbers)
        if number >= first and number % EVERY:
            return made(*args, **kwargs)
        if typed is None:
            typed = beartype(_with_hints(made))
        with jaxtyped("context"):
            return typed(*args, **kwargs)

    return call


def _with_hints(function: FunctionType) -> Callable[..., Any]:
    """A copy whose hints are types: Any for what is only imported for a type checker."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    for name, hint in function.__annotations__.items():
        alone = FunctionType((lambda: None).__code__, function.__globals__)
        alone.__annotations__ = {name: hint}
        try:
            copy.__annotations__[name] = get_type_hints(alone, include_extras=True)[name]
        except Exception:  # an annotation is code, and may fail in any way
            copy.__annotations__[name] = Any
    return copy


class Decorate(ast.NodeTransformer):
    """Puts `checked` on every function, and on every class once `dataclass` has made it."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return self._decorated(node, 0)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return self._decorated(node, len(node.decorator_list))  # others may hide the hints

    def _decorated(self, node: Any, place: int) -> Any:
        if not any(getattr(each, "id", "") == "no_type_check" for each in node.decorator_list):
            name = ast.Name(CHECKED, ast.Load())
            node.decorator_list.insert(place, ast.copy_location(name, node))
            self.generic_visit(node)
        return node


class Loader(SourceFileLoader):
    """Compiles a module with the checks, and keeps nothing of that on the disk."""

    def get_code(self, fullname: str) -> CodeType:
        tree = Decorate().visit(ast.parse(self.get_data(self.path)))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[CHECKED] = checked
        super().exec_module(module)


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
