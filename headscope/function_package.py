"""Packages whose attributes are functions, so that `hs.studies.` and tab offer what can be called.

A study's folder is often called as its function is. Importing the folder would put the module in
the function's place; here it does not. Folders are imported as always, by `from … import …`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any


class FunctionPackage(ModuleType):
    """A package with functions of its modules, each imported when it is first used."""

    function_homes: Mapping[str, str] = MappingProxyType({})
    """The module of each function by its name."""

    def __getattr__(self, name: str) -> Any:
        if name not in self.function_homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(self.function_homes[name]), name)

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in self.function_homes and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(self.function_homes)


def offer_functions(package: str, function_homes: Mapping[str, str]) -> list[str]:
    """Make functions the attributes of a package that is being imported; their names, sorted."""
    module = sys.modules[package]
    module.__class__ = FunctionPackage
    vars(module)["function_homes"] = function_homes
    return sorted(function_homes)
