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
from headscope.relations.heuristics import UPOS, query_class
from headscope.relations.pairs import distinct
from headscope.relations.relation import Relation
from headscope.studies.explain import places, tokens
from headscope.studies.explain.feature import Feature, FeatureCells, TokenFacts, cells

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
        next((i for i, classes in enumerate(_GATE_OF.values()) if upos in classes), len(_GATE_OF))
        for upos in (*UPOS, "")
    ]
)


_FAMILIES = (
    places.sinks,
    places.distances,
    tokens.key_words,
    tokens.spelling,
    tokens.rarity,
    tokens.marks,
    tokens.repeat_features,
    tokens.simple_rules,
    places.resting,
    places.sentences,
    places.trees,
    places.entities,
)


class Catalogue:
    """The source of the features of rules: the text, and nothing but the text."""

    def __init__(self, lexicon: TokenFacts, relations: Sequence[Relation]) -> None:
        self.lexicon = lexicon
        self.relations = [
            relation
            for relation in relations
            if "text" in relation.stimuli and relation.type not in _PLAIN_TYPES
        ]

    def cells(self, window: Window) -> Iterator[FeatureCells]:
        """Every feature's cells in a window, of keys that the query sees."""
        for entries in self._cells(window):
            seen = window.attention_kind.sees(entries.query, entries.key)
            yield cells(
                entries.feature, *(v[seen] for v in (entries.query, entries.key, entries.value))
            )

    def _cells(self, window: Window) -> Iterator[FeatureCells]:
        for family in _FAMILIES:
            yield from family(window, self.lexicon)
        for relation in self.relations:
            pairs = distinct(relation.pairs(window))
            kind = _KIND_OF_TYPE.get(relation.type, relation.type)
            feature = Feature(relation.id, relation.rule.meaning, kind)
            yield cells(feature, pairs.query, pairs.key)


def gates(window: Window) -> Int[ndarray, " position"]:
    """The number among `GATES` of each query of a window."""
    return np.asarray(_GATE_NUMBER[query_class(window)])


def first_query(window: Window) -> int:
    """The first position that sees more than itself.

    >>> first_query(Window("w", np.arange(3), ("a",) * 3))
    1
    """
    return 0 if window.attention_kind.sees_future else 1


@dataclass(frozen=True, eq=False)
class QueryTable:
    """Queries of windows as rows of one table: every so many, from the first that sees more than
    itself on: that is token 1, of an encoder token 0.
    """

    windows: tuple[Window, ...]
    window: Int[Tensor, " row"]
    query: Int[Tensor, " row"]
    width: int
    """Keys of a row, those that the query does not see included, which are masked."""
    gate: Int[Tensor, " row"]
    row_end: Int[Tensor, " row"]
    """The number of keys that each query sees: those before this position."""
    step: int = 1
    """1 for every query, 2 for every second, …"""

    @classmethod
    def of(cls, windows: Sequence[Window], step: int = 1) -> QueryTable:
        """The rows of windows, in their order."""
        query = [np.arange(first_query(values), len(values), step) for values in windows]
        window = [np.full(len(values), i) for i, values in enumerate(query)]
        gate = [gates(values)[positions] for values, positions in zip(windows, query, strict=True)]
        row_end = [
            values.attention_kind.row_end(positions, len(values))
            for values, positions in zip(windows, query, strict=True)
        ]
        columns = (window, query, gate, row_end)
        joined = (torch.from_numpy(np.concatenate(values)) for values in columns)
        where, at, gate_of_row, end = joined
        return cls(tuple(windows), where, at, max(map(len, windows)), gate_of_row, end, step)

    def __len__(self) -> int:
        return len(self.query)

    @property
    def seen(self) -> Bool[Tensor, "row key"]:
        """The keys that each query sees."""
        return torch.arange(self.width) < self.row_end[:, None]


@dataclass(frozen=True, eq=False)
class Packed:
    """All features' cells over some rows: feature by feature, and row by row within each."""

    features: tuple[Feature, ...]
    start: Int[ndarray, " bound"]
    """Where each feature's cells begin, and the end of the last."""
    cell: Int[ndarray, " cell"]
    """row · width + key."""
    value: Float[ndarray, " cell"]

    def cells_of(self, feature: int) -> tuple[ndarray, ndarray]:
        """One feature's cells with their values."""
        part = slice(int(self.start[feature]), int(self.start[feature + 1]))
        return self.cell[part], self.value[part]


def find_cells(
    catalogue: Catalogue, rows: QueryTable, *, only: Sequence[Feature] | None = None
) -> Packed:
    """Find the cells of every feature, or of some, in all windows.

    Args:
        catalogue: where features come from.
        rows: the queries that count.
        only: the features that are wanted, in this order; all that are found when None.
    """
    cells_of_feature: dict[Feature, list[tuple[ndarray, ndarray]]] = {
        entries: [] for entries in only or ()
    }
    first = 0
    for window in rows.windows:
        begin = first_query(window)
        for entries in catalogue.cells(window):
            in_rows = (entries.query >= begin) & ((entries.query - begin) % rows.step == 0)
            if not in_rows.any() or (only is not None and entries.feature not in cells_of_feature):
                continue
            row = first + (entries.query[in_rows] - begin) // rows.step
            cell, value = row * rows.width + entries.key[in_rows], entries.value[in_rows]
            order = np.argsort(cell, kind="stable")
            cells_of_feature.setdefault(entries.feature, []).append((cell[order], value[order]))
        first += len(range(begin, len(window), rows.step))
    none = (np.empty(0, np.int64), np.empty(0))
    cell = [np.concatenate([c for c, _ in [none, *blocks]]) for blocks in cells_of_feature.values()]
    value = [
        np.concatenate([v for _, v in [none, *blocks]]) for blocks in cells_of_feature.values()
    ]
    start = np.concatenate([[0], np.cumsum([len(entries) for entries in cell])]).astype(np.int64)
    every = np.concatenate([none[0], *cell]).astype(np.int32)
    return Packed(
        tuple(cells_of_feature), start, every, np.concatenate([none[1], *value]).astype(np.float32)
    )
