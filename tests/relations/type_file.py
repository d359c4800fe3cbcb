"""Small texts and heads of one head type; each file of `tests/relations/types` declares its own.

Such a file has `EXAMPLES`, and `CASE` if its type has lazy heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import NamedTuple

from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.relations import head_types
from headscope.stimuli.natural_text import TEXT
from tests.relations import types
from tests.relations.looking import Look

NOISES = (0.0, 0.1, 0.5)


@dataclass(frozen=True)
class Example:
    """A text with the keys that each query should look at, by hand."""

    relation: str
    tokens: list[str]
    targets: dict[int, list[int]]
    """Every query that counts, with its keys."""
    document: Document | None = None

    def __post_init__(self) -> None:
        # a relation of a stimulus finds nothing in natural text
        kind, _, name = self.relation.partition("/")
        stimuli = [row.stimuli for row in head_types()[kind].relations if row.name == name]
        if self.document is not None and stimuli and TEXT.name not in stimuli[0]:
            of_stimulus = replace(self.document, stimulus=stimuli[0][0])
            object.__setattr__(self, "document", of_stimulus)


class Case(NamedTuple):
    """Heads of one type on some windows, and the tags that those who know must have."""

    type: str
    windows: Callable[[], Sequence[Window]]
    heads: dict[str, Look | tuple[Look, float]]
    tags: dict[str, set[str]]
    """Names of heads that know; all other heads must have no tag of these relations."""
    relations: tuple[str, ...] = ()
    """Relations that are looked at; all of the type if empty."""


def type_files() -> list[ModuleType]:
    """The files of `tests/relations/types`."""
    names = [module.name for module in iter_modules(types.__path__)]
    return [import_module(f"{types.__name__}.{name}") for name in names]
