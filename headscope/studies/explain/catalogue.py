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
from headscope.relations.baselines import query_class
from headscope.relations.pairs import distinct
from headscope.relations.relation import Relation
from headscope.relations.word_rows import UPOS
from headscope.studies.explain.features import FAMILIES, Feature, FeatureCells, TokenFacts, cells

STEP = 2
"""Every second query is fitted: neighbouring queries have similar attention."""
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
BIGRAMS = Feature("bigrams", "lexical")
"""A feature whose values differ between heads; see `headscope.studies.explain.content`."""
_OF_BIGRAMS = -1
"""Number of `BIGRAMS`."""
GATES = (*_GATE_OF, "piece within a word")
"""Kinds of queries, by the class of the word that ends there; the last if no word ends there."""
_GATE_NUMBER = np.array(
    [
        next((i for i, classes in enumerate(_GATE_OF.values()) if upos in classes), len(_GATE_OF))
        for upos in (*UPOS, "")
    ]
)


class SplitWindows(NamedTuple):
    """Windows of a text by what they serve for, of different documents."""

    fit: Sequence[Window]
    choose: Sequence[Window] = ()
    judge: Sequence[Window] = ()


@dataclass(frozen=True, eq=False)
class Texts:
    """Queries of windows as rows, and the cells of all features in these rows.

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
    lexicon: TokenFacts
    """Facts of the tokens of the windows that fit."""
    relations: Sequence[Relation]
    """Relations that are features too, those in text."""

    @classmethod
    def of(
        cls,
        split: SplitWindows,
        relations: Sequence[Relation],
        *,
        lexicon: TokenFacts | None = None,
        step: int = STEP,
    ) -> Texts:
        """Rows of windows that fit, choose and judge.

        Every `step`-th query of a window is a row. The lexicon is that of the windows that fit,
        unless it is given.
        """
        lexicon = lexicon or TokenFacts.of(split.fit)
        windows = tuple(chain(*split))
        width = max(len(window) for window in windows)
        # a row for each query that is read, with its gate
        query, gate, row_end = [], [], []
        for window in windows:
            positions = np.arange(_first_query(window), len(window), step)
            query.append(positions)
            gate.append(kinds_of_tokens(window)[positions])
            row_end.append(window.attention_kind.row_end(positions, len(window)))
        # windows that fit come first, then those that choose, so that each part is a slice of rows
        counts = [len(positions) for positions in query]
        fitting = len(split.fit)
        choosing = len(split.choose)
        # cells of all texts by feature, one feature after the other
        blocks_of_feature: dict[Feature, list[_Block]] = {}
        first_row = 0
        for text_window in windows:
            for entries in _feature_cells(text_window, lexicon, relations):
                block = _block(text_window, entries, first_row, width, step)
                if len(block.cell):
                    blocks_of_feature.setdefault(entries.feature, []).append(block)
            first_row += len(range(_first_query(text_window), len(text_window), step))
        # most cells have the value 0 of most features, so that the others alone are kept, side by
        # side
        blocks = list(chain(*blocks_of_feature.values()))
        cell_counts = [0]
        for blocks_of_one in blocks_of_feature.values():
            cell_counts.append(sum(len(block.cell) for block in blocks_of_one))
        return cls(
            windows=windows,
            window=torch.from_numpy(np.repeat(np.arange(len(windows)), counts)),
            query=torch.from_numpy(np.concatenate(query)),
            width=width,
            gate=torch.from_numpy(np.concatenate(gate)),
            row_end=torch.from_numpy(np.concatenate(row_end)),
            fitted=sum(counts[:fitting]),
            selection_rows=sum(counts[: fitting + choosing]),
            features=tuple(blocks_of_feature),
            start=np.cumsum(cell_counts).astype(np.int64),
            cell=np.concatenate([block.cell for block in blocks]).astype(np.int32),
            value=np.concatenate([block.value for block in blocks]).astype(np.float32),
            lexicon=lexicon,
            relations=relations,
        )

    def on(self, windows: Sequence[Window]) -> Texts:
        """Every query of other windows, with the features of these texts."""
        return Texts.of(SplitWindows(windows), self.relations, lexicon=self.lexicon, step=1)

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

    def rows_of(
        self, pattern: Float[Tensor, "window head query key"]
    ) -> Float[Tensor, "head row key"]:
        """The rows of heads' patterns on the windows; each sums to 1."""
        rows = pattern[self.window, :, self.query].permute(1, 0, 2).float()
        return rows / rows.sum(-1, keepdim=True)

    def feature(self, term: Term) -> Feature:
        """The feature of a term."""
        return BIGRAMS if term == BIGRAMS_TERM else self.features[term.feature]

    def values(
        self,
        terms: Sequence[Term],
        rows: int | None = None,
        *,
        content: Float[Tensor, "every key"] | None = None,
    ) -> Float[Tensor, "term row key"]:
        """Values of features at every cell of the first rows, or of all rows if None.

        Args:
            terms: features.
            rows: number of first rows; all when None.
            content: values of `BIGRAMS` on all rows; None if it is not among the features.
        """
        count = len(self) if rows is None else rows
        values = torch.zeros(len(terms), count * self.width)
        for index, term in enumerate(terms):
            if term == BIGRAMS_TERM and content is not None:
                values[index] = content[:count].flatten()
                # cells of the feature, at queries of its gate
                continue
            first, end = self.start[term.feature], self.start[term.feature + 1]
            cell = self.cell[first:end]
            value = self.value[first:end]
            is_shown = cell < count * self.width
            if term.gate >= 0:
                row = cell // self.width
                is_shown &= self.gate.numpy()[row] == term.gate
            shown_cells = torch.from_numpy(cell[is_shown])
            values[index, shown_cells] = torch.from_numpy(value[is_shown])
        return values.view(len(terms), count, self.width)


class Term(NamedTuple):
    """A feature at every query or at one kind of query."""

    feature: int
    gate: int
    """Number in `GATES`; −1 for every query."""


BIGRAMS_TERM = Term(_OF_BIGRAMS, -1)
"""`BIGRAMS` at every query."""


def kinds_of_tokens(window: Window) -> Int[ndarray, " token"]:
    """The number in `GATES` of each token of a window."""
    kinds: ndarray = _GATE_NUMBER[query_class(window)]
    return kinds


def _first_query(window: Window) -> int:
    """Position of the first query that sees more than itself."""
    return 0 if window.attention_kind.sees_future else 1


class _Block(NamedTuple):
    """Cells of one feature in one window, in order."""

    cell: Int[ndarray, " cell"]
    value: Float[ndarray, " cell"]


def _block(window: Window, entries: FeatureCells, first_row: int, width: int, step: int) -> _Block:
    """The cells of a feature at the queries of a window that are rows, sorted."""
    begin = _first_query(window)
    after_begin = entries.query - begin
    is_row = (after_begin >= 0) & (after_begin % step == 0)
    is_row &= window.attention_kind.sees(entries.query, entries.key)
    row = first_row + after_begin[is_row] // step
    cell = row * width + entries.key[is_row]
    order = np.argsort(cell, kind="stable")
    return _Block(cell=cell[order], value=entries.value[is_row][order])


def _feature_cells(
    window: Window, lexicon: TokenFacts, relations: Sequence[Relation]
) -> Iterator[FeatureCells]:
    for family in FAMILIES:
        yield from family(window, lexicon)
    for relation in relations:
        if "text" not in relation.stimuli or relation.type in _PLAIN_TYPES:
            continue
        feature = Feature(relation.id, relation.type)
        pairs = distinct(relation.pairs(window))
        yield cells(feature, pairs.query, pairs.key)
