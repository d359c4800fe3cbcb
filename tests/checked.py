"""Calls within `headscope` are checked by beartype while tests run: `pytest -p tests.checked`.

jaxtyping's own hook, `--jaxtyping-packages`, checks every argument twice and needs names that
headscope imports for type checkers alone. Here each function is checked once, in jaxtyping's
context for the names of axes. Of a function that is called often, the first calls are checked and
one in fifty after them.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, FunctionType, ModuleType
from typing import Any, get_type_hints

from beartype import beartype
from jaxtyping import jaxtyped

PACKAGE = "headscope"
FIRST, EVERY = 200, 50

_calls = Counter[CodeType]()


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
    if not inspect.isfunction(made) or not _is_next(made):
        return made
    if inspect.iscoroutinefunction(made) or inspect.isgeneratorfunction(made):
        return made  # its body runs later, in another context
    typed = beartype(_with_hints(made))

    @wraps(made)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _is_next(made):
            return made(*args, **kwargs)
        with jaxtyped("context"):
            return typed(*args, **kwargs)

    return call


def _is_next(function: FunctionType) -> bool:
    """True if this call of a function is one of those that are checked."""
    _calls[function.__code__] += 1
    return _calls[function.__code__] <= FIRST or _calls[function.__code__] % EVERY == 0


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
            decorator = ast.parse(f"__import__({__name__!r}, fromlist=['checked']).checked").body[0]
            node.decorator_list.insert(place, decorator.value)  # type: ignore[attr-defined]
            self.generic_visit(node)
        return node


class Loader(SourceFileLoader):
    """Compiles a module with the checks, and keeps nothing of that on the disk."""

    def get_code(self, fullname: str) -> CodeType:
        tree = Decorate().visit(ast.parse(self.get_data(self.path)))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


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
