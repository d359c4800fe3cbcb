"""Rows of text that fit and judge feature models, and the cells of all features there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.relations.baselines import UPOS, query_class
from headscope.relations.pairs import distinct
from headscope.relations.relation import Relation
from headscope.studies.explain import places, tokens
from headscope.studies.explain.feature import Feature, FeatureCells, TokenFacts, cells

STEP = 2
"""Every second query counts: neighbouring queries have similar attention."""
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
    tokens.baselines,
    places.sentences,
    places.trees,
    places.entities,
)


@dataclass(frozen=True, eq=False)
class Texts:
    """Every second query of windows as a row, and the cells of all features in these rows.

    Rows of the windows that fit come first, then those that choose, then those that judge.
    """

    windows: tuple[Window, ...]
    window: Int[Tensor, " row"]
    """Index of each row's window."""
    query: Int[Tensor, " row"]
    """Position of each row's query in its window."""
    width: int
    """Keys of a row; those that its query does not see are masked."""
    gate: Int[Tensor, " row"]
    """Number of each query's kind in `GATES`."""
    row_end: Int[Tensor, " row"]
    """Number of keys that each query sees: those before this position."""
    fitted: int
    """Number of rows that weights are fitted on while features are chosen."""
    selection_rows: int
    """Number of rows before the first one that judges."""
    features: tuple[Feature, ...]
    start: Int[ndarray, " bound"]
    """Index of each feature's first cell, and the number of cells."""
    cell: Int[ndarray, " cell"]
    """row · width + key, feature by feature and row by row."""
    value: Float[ndarray, " cell"]

    @classmethod
    def of(
        cls, parts: Sequence[Sequence[Window]], lexicon: TokenFacts, relations: Sequence[Relation]
    ) -> Texts:
        """Rows of windows that fit, choose and judge; relations in text are features too."""
        windows = tuple(chain(*parts))
        query = [np.arange(_first_query(window), len(window), STEP) for window in windows]
        gate, row_end = [], []
        for window, positions in zip(windows, query, strict=True):
            gate.append(_GATE_NUMBER[query_class(window)][positions])
            row_end.append(window.attention_kind.row_end(positions, len(window)))
        counts = list(map(len, query))
        width, choosing = max(map(len, windows)), len(parts[0]) + len(parts[1])
        return cls(
            windows,
            torch.from_numpy(np.repeat(np.arange(len(windows)), counts)),
            torch.from_numpy(np.concatenate(query)),
            width,
            torch.from_numpy(np.concatenate(gate)),
            torch.from_numpy(np.concatenate(row_end)),
            sum(counts[: len(parts[0])]),
            sum(counts[:choosing]),
            *_find_cells(windows, width, lexicon, relations),
        )

    def __len__(self) -> int:
        return len(self.query)

    @property
    def seen(self) -> Bool[Tensor, "row key"]:
        """Mask of the keys that each query sees."""
        return torch.arange(self.width) < self.row_end[:, None]

    @property
    def judged(self) -> slice:
        """The rows of documents that neither fitted nor chose."""
        return slice(self.selection_rows, len(self))

    def values(
        self, terms: Sequence[Term], rows: int | None = None
    ) -> Float[Tensor, "term row key"]:
        """Values of features at every cell of the first rows, or of all rows if None."""
        count = len(self) if rows is None else rows
        values = torch.zeros(len(terms), count * self.width)
        for index, term in enumerate(terms):
            part = slice(int(self.start[term.feature]), int(self.start[term.feature + 1]))
            cell, value = self.cell[part], self.value[part]
            in_rows = cell < count * self.width
            if term.gate >= 0:
                in_rows &= self.gate.numpy()[cell // self.width] == term.gate
            values[index, torch.from_numpy(cell[in_rows])] = torch.from_numpy(value[in_rows])
        return values.view(len(terms), count, self.width)


class Term(NamedTuple):
    """A feature at every query or at one kind of query."""

    feature: int
    gate: int
    """Number in `GATES`; −1 for every query."""


def _first_query(window: Window) -> int:
    """Position of the first query that sees more than itself."""
    return 0 if window.attention_kind.sees_future else 1


def _find_cells(
    windows: Sequence[Window], width: int, lexicon: TokenFacts, relations: Sequence[Relation]
) -> tuple[tuple[Feature, ...], ndarray, ndarray, ndarray]:
    """Features, and the `start`, `cell` and `value` of their cells."""
    cells_of_feature: dict[Feature, list[tuple[ndarray, ndarray]]] = {}
    first = 0
    for window in windows:
        begin = _first_query(window)
        for entries in _feature_cells(window, lexicon, relations):
            in_rows = (entries.query >= begin) & ((entries.query - begin) % STEP == 0)
            in_rows &= window.attention_kind.sees(entries.query, entries.key)
            if not in_rows.any():
                continue
            row = first + (entries.query[in_rows] - begin) // STEP
            cell, value = row * width + entries.key[in_rows], entries.value[in_rows]
            order = np.argsort(cell, kind="stable")
            cells_of_feature.setdefault(entries.feature, []).append((cell[order], value[order]))
        first += len(range(begin, len(window), STEP))
    cell, value = (list(part) for part in zip(*chain(*cells_of_feature.values()), strict=True))
    counts = [sum(len(c) for c, _ in blocks) for blocks in cells_of_feature.values()]
    return (
        tuple(cells_of_feature),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate(cell).astype(np.int32),
        np.concatenate(value).astype(np.float32),
    )


def _feature_cells(
    window: Window, lexicon: TokenFacts, relations: Sequence[Relation]
) -> Iterator[FeatureCells]:
    for family in _FAMILIES:
        yield from family(window, lexicon)
    for relation in relations:
        if "text" in relation.stimuli and relation.type not in _PLAIN_TYPES:
            pairs = distinct(relation.pairs(window))
            yield cells(Feature(relation.id, relation.type), pairs.query, pairs.key)
