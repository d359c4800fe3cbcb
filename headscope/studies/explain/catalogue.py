"""Cells of all features in windows, for the queries that a rule is fitted or run on."""

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

_PLAIN_TYPES = ("positional", "sink", "delimiter")
"""Head types whose relations other features cover."""
_GATE_OF = {
    "noun": ("NOUN", "PROPN"),
    "pronoun": ("PRON",),
    "verb": ("VERB", "AUX"),
    "modifier": ("ADJ", "ADV", "NUM"),
    "function word": ("ADP", "CCONJ", "DET", "PART", "SCONJ"),
    "mark": ("PUNCT", "SYM"),
}
GATES = (*_GATE_OF, "piece within a word")
"""Kinds of queries, by the class of the word that ends there; the last if no word ends there."""
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
    """Source of all features: functions of the text, and the relations of head types."""

    def __init__(self, lexicon: TokenFacts, relations: Sequence[Relation]) -> None:
        self.lexicon = lexicon
        self.relations = [
            relation
            for relation in relations
            if "text" in relation.stimuli and relation.type not in _PLAIN_TYPES
        ]

    def cells(self, window: Window) -> Iterator[FeatureCells]:
        """Each feature's visible cells in a window."""
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
            yield cells(Feature(relation.id, relation.type), pairs.query, pairs.key)


def _first_query(window: Window) -> int:
    """Position of the first query that sees more than itself."""
    return 0 if window.attention_kind.sees_future else 1


@dataclass(frozen=True, eq=False)
class QueryTable:
    """Queries of windows as the rows of one table, from the first that sees more than itself."""

    windows: tuple[Window, ...]
    window: Int[Tensor, " row"]
    query: Int[Tensor, " row"]
    width: int
    """Keys of a row; those that its query does not see are masked."""
    gate: Int[Tensor, " row"]
    """Number of each query's kind in `GATES`."""
    row_end: Int[Tensor, " row"]
    """Number of keys that each query sees: those before this position."""
    step: int = 1
    """1 for every query, 2 for every second one."""

    @classmethod
    def of(cls, windows: Sequence[Window], step: int = 1) -> QueryTable:
        """The rows of windows, in order."""
        query = [np.arange(_first_query(values), len(values), step) for values in windows]
        window = [np.full(len(values), i) for i, values in enumerate(query)]
        gate = [
            _GATE_NUMBER[query_class(values)][positions]
            for values, positions in zip(windows, query, strict=True)
        ]
        row_end = [
            values.attention_kind.row_end(positions, len(values))
            for values, positions in zip(windows, query, strict=True)
        ]
        columns = (window, query, gate, row_end)
        where, at, gate_of_row, end = (torch.from_numpy(np.concatenate(c)) for c in columns)
        return cls(tuple(windows), where, at, max(map(len, windows)), gate_of_row, end, step)

    def __len__(self) -> int:
        return len(self.query)

    @property
    def seen(self) -> Bool[Tensor, "row key"]:
        """Mask of the keys that each query sees."""
        return torch.arange(self.width) < self.row_end[:, None]


@dataclass(frozen=True, eq=False)
class Packed:
    """Cells of all features over some rows, feature by feature and row by row."""

    features: tuple[Feature, ...]
    start: Int[ndarray, " bound"]
    """Index of each feature's first cell, and the number of cells."""
    cell: Int[ndarray, " cell"]
    """row · width + key."""
    value: Float[ndarray, " cell"]

    def cells_of(self, feature: int) -> tuple[ndarray, ndarray]:
        """Cells and values of one feature."""
        part = slice(int(self.start[feature]), int(self.start[feature + 1]))
        return self.cell[part], self.value[part]


def find_cells(catalogue: Catalogue, rows: QueryTable) -> Packed:
    """Find the cells of every feature in all rows."""
    cells_of_feature: dict[Feature, list[tuple[ndarray, ndarray]]] = {}
    first = 0
    for window in rows.windows:
        begin = _first_query(window)
        for entries in catalogue.cells(window):
            in_rows = (entries.query >= begin) & ((entries.query - begin) % rows.step == 0)
            if not in_rows.any():
                continue
            row = first + (entries.query[in_rows] - begin) // rows.step
            cell, value = row * rows.width + entries.key[in_rows], entries.value[in_rows]
            order = np.argsort(cell, kind="stable")
            cells_of_feature.setdefault(entries.feature, []).append((cell[order], value[order]))
        first += len(range(begin, len(window), rows.step))
    empty = (np.empty(0, np.int64), np.empty(0))
    cell, value = zip(*([empty] + [b for bs in cells_of_feature.values() for b in bs]), strict=True)
    counts = [sum(len(c) for c, _ in blocks) for blocks in cells_of_feature.values()]
    return Packed(
        tuple(cells_of_feature),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate(cell).astype(np.int32),
        np.concatenate(value).astype(np.float32),
    )
