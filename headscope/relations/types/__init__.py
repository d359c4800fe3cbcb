"""Head types that ship: each file of this folder declares one as `TYPE`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from headscope.relations.head_type import HeadType


@cache
def shipped_types() -> tuple[HeadType, ...]:
    """The head types of the files of this folder, by their `order`."""
    types: list[HeadType] = []
    for module in iter_modules(__path__):
        types.append(import_module(f"{__name__}.{module.name}").TYPE)
    return tuple(sorted(types, key=lambda row: (row.order, row.name)))
