"""All features of some windows, packed feature by feature, ready to be weighed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.relations.pairs import distinct
from headscope.relations.relation import Relation
from headscope.relations.simple_rules import UPOS, query_class
from headscope.studies.explain.feature import Cells, Feature, Lexicon, cells
from headscope.studies.explain.positions import PLACES
from headscope.studies.explain.resting import resting
from headscope.studies.explain.structure import STRUCTURE
from headscope.studies.explain.tokens import TOKENS

_KIND_OF_TYPE = {"positional": "position"}
_PLAIN_TYPES = ("positional", "sink", "delimiter")
"""Types whose relations are among the plain features already."""
_GATE_OF = {
    "noun": ("NOUN", "PROPN"),
    "pronoun": ("PRON",),
    "verb": ("VERB", "AUX"),
    "modifier": ("ADJ", "ADV", "NUM"),
    "function word": ("ADP", "CCONJ", "DET", "PART", "SCONJ"),
    "mark": ("PUNCT", "SYM"),
}
GATES = (*_GATE_OF, "piece within a word")
"""What a feature may ask of the query: the kind of word that ends there, or none ending there."""
_GATE_NUMBER = np.array(
    [
        next((i for i, own in enumerate(_GATE_OF.values()) if upos in own), len(_GATE_OF))
        for upos in (*UPOS, "")
    ]
)


class Catalogue:
    """Where the features of rules come from: the text, and nothing but the text."""

    def __init__(self, lexicon: Lexicon, relations: Sequence[Relation]) -> None:
        self.lexicon = lexicon
        self.relations = [
            each for each in relations if "text" in each.stimuli and each.type not in _PLAIN_TYPES
        ]

    def cells(self, window: Window) -> Iterator[Cells]:
        """Every feature's cells in a window."""
        for family in (*PLACES, *TOKENS, resting, *STRUCTURE):
            yield from family(window, self.lexicon)
        for relation in self.relations:
            pairs = distinct(relation.pairs(window))
            kind = _KIND_OF_TYPE.get(relation.type, relation.type)
            feature = Feature(relation.id, relation.rule.meaning, kind)
            yield cells(feature, pairs.query, pairs.key)


def gates(window: Window) -> Int[ndarray, " position"]:
    """The number among `GATES` of each query of a window."""
    return np.asarray(_GATE_NUMBER[query_class(window)])


@dataclass(frozen=True, eq=False)
class Rows:
    """Queries of windows as rows of one table: every so many, but each window's first token."""

    windows: tuple[Window, ...]
    window: Int[Tensor, " row"]
    query: Int[Tensor, " row"]
    width: int
    """Keys of a row, those after the query included, which are masked."""
    gate: Int[Tensor, " row"]
    step: int = 1
    """1 for every query, 2 for every second, …"""

    @classmethod
    def of(cls, windows: Sequence[Window], step: int = 1) -> Rows:
        """The rows of windows, in their order."""
        query = [np.arange(1, len(each), step) for each in windows]
        window = [np.full(len(each), i) for i, each in enumerate(query)]
        gate = [gates(each)[own] for each, own in zip(windows, query, strict=True)]
        joined = (torch.from_numpy(np.concatenate(each)) for each in (window, query, gate))
        where, at, asked = joined
        return cls(tuple(windows), where, at, max(map(len, windows)), asked, step)

    def __len__(self) -> int:
        return len(self.query)

    @property
    def seen(self) -> Bool[Tensor, "row key"]:
        """Which keys each query sees."""
        return torch.arange(self.width) <= self.query[:, None]


@dataclass(frozen=True, eq=False)
class Packed:
    """All features' cells over some rows: feature by feature, and row by row within each."""

    features: tuple[Feature, ...]
    start: Int[ndarray, " bound"]
    """Where each feature's cells begin, and the end of the last."""
    cell: Int[ndarray, " cell"]
    """row · width + key."""
    value: Float[ndarray, " cell"]

    def own(self, feature: int) -> tuple[ndarray, ndarray]:
        """One feature's cells with their values."""
        part = slice(int(self.start[feature]), int(self.start[feature + 1]))
        return self.cell[part], self.value[part]


def pack(catalogue: Catalogue, rows: Rows, *, only: Sequence[Feature] | None = None) -> Packed:
    """Find the cells of every feature, or of some, in all windows.

    Args:
        catalogue: where features come from.
        rows: the queries that count.
        only: the features that are wanted, in this order; all that are found when None.
    """
    found: dict[Feature, list[tuple[ndarray, ndarray]]] = {each: [] for each in only or ()}
    first = 0
    for window in rows.windows:
        for each in catalogue.cells(window):
            kept = (each.query > 0) & ((each.query - 1) % rows.step == 0)
            if not kept.any() or (only is not None and each.feature not in found):
                continue
            row = first + (each.query[kept] - 1) // rows.step
            cell, value = row * rows.width + each.key[kept], each.value[kept]
            order = np.argsort(cell, kind="stable")
            found.setdefault(each.feature, []).append((cell[order], value[order]))
        first += len(range(1, len(window), rows.step))
    none = (np.empty(0, np.int64), np.empty(0))
    cell = [np.concatenate([c for c, _ in [none, *own]]) for own in found.values()]
    value = [np.concatenate([v for _, v in [none, *own]]) for own in found.values()]
    start = np.concatenate([[0], np.cumsum([len(each) for each in cell])]).astype(np.int64)
    every = np.concatenate([none[0], *cell]).astype(np.int32)
    return Packed(tuple(found), start, every, np.concatenate([none[1], *value]).astype(np.float32))
