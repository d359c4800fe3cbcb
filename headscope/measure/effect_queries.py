"""The queries and tokens at which effects are read in a batch, and how their values add up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.selection import find_all
from headscope.measure.sparse import summing_matrix
from headscope.models.engines.engine import QueryRows, Request, SelfEntries
from headscope.relations.effects import Effect, sum_names
from headscope.relations.pairs import Pairs
from headscope.relations.query_sampling import turns
from headscope.relations.relation import MATCHED_CONTROL, SELF, part_name
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.natural_text import TEXT

EVERY = 4
"""One query of so many in natural text is asked about the token that each head looks at: ten
thousand in a common run, and the others would say the same at four times the cost."""


@dataclass(frozen=True, eq=False)
class NamedTokenQueries:
    """Queries at which the text names tokens, and the means over them."""

    query: Int[Tensor, " ask"]
    """Number of the query among the batch's queries."""
    rows: Int[Tensor, "part ask"]
    """The rows of the effect, of its matched control, and of what the query's own position gives;
    −1 if there is no such part."""
    target: Tensor
    """`[ask token]`, sparse: each row is the mean over its tokens."""
    control: Tensor
    second: Tensor
    """Likewise; rows without a matched control are empty."""


@dataclass(frozen=True, eq=False)
class TopKeyQueries:
    """Queries at which every head is asked about the token that it looks at itself.

    They are the first of the batch's asked queries, window after window.
    """

    requests: tuple[QueryRows, ...]
    """Their rows of attention, a window each."""
    window: Int[Tensor, " query"]
    """The request that each query belongs to."""
    order: Int[Tensor, " query"]
    """The queries of each window in an order that is drawn, window after window."""
    tokens: Int[Tensor, "look position"]
    """Each position's place among the batch's tokens; −1 for the first and beyond the text."""
    count: Float[Tensor, "look token"]
    """Number of each text's positions, from the second on, at which a token stands."""
    rows: tuple[tuple[int, ...], ...]
    """For each look effect the row of each window; those of the matched control come after."""


@dataclass(frozen=True, eq=False)
class EffectQueries:
    """The queries and tokens of all effects in a batch."""

    queries: Int[Tensor, " query"]
    """Flat, as `[window position]` of the padded batch."""
    tokens: Int[Tensor, " token"]
    """Distinct; all that are asked about anywhere in the batch."""
    named_tokens: NamedTokenQueries | None
    top_key: TopKeyQueries | None
    block: Int[ndarray, " row"]
    effect: Int[ndarray, " row"]
    """The place among the names of a tally, counted from their end as −1, −2, …"""
    count: Int[ndarray, " row"]
    """Queries of each row, whatever the heads do there."""
    selves: tuple[SelfEntries, ...] = ()
    """The named queries, window by window, where an effect asks what they take from themselves."""

    @property
    def requests(self) -> tuple[Request, ...]:
        """The rows of attention that are read."""
        return (*(() if self.top_key is None else self.top_key.requests), *self.selves)


def effect_queries(
    batch: Batch, window_pairs: Sequence[WindowPairs], effects: Sequence[Effect], *, seed: int
) -> EffectQueries | None:
    """The queries of effects in a batch; None if it has none.

    Draws are seeded by the run's seed, the effect and the window's own text.
    """
    length, rows = max(map(len, batch.windows)), EffectRows(effects)
    named_tokens = list(_named_tokens(batch, window_pairs, effects, seed))
    windows = _windows_with_queries(batch, effects)
    if not named_tokens and not windows:
        return None
    first = np.concatenate([_NONE, *(window * length + queries for window, queries in windows)])
    others = np.unique(np.concatenate([_NONE, *(item.queries for item in named_tokens)]))
    texts = [batch.windows[window].tokens[1:] for window, _ in windows]
    texts += [side.key for item in named_tokens for side in item.sides]
    tokens = np.unique(np.concatenate(texts))
    top_key = _top_key_queries(batch, effects, windows, tokens, rows) if windows else None
    of_moved = others if any(effect.moved for effect in effects) else _NONE
    selves = [
        SelfEntries(int(window), of_moved[of_moved // length == window] % length)
        for window in np.unique(of_moved // length)
    ]
    named_queries = None
    if named_tokens:
        named_queries = _named_queries(named_tokens, tokens, others, rows, after=len(first))
    return EffectQueries(
        # a query of both kinds stands in both parts: few do, and each part stays simple
        torch.from_numpy(np.concatenate([first, others])),
        torch.from_numpy(tokens),
        named_queries,
        top_key,
        *rows.columns(),
        tuple(selves),
    )


_NONE = np.zeros(0, np.int64)


class EffectRows:
    """The rows of a batch's sums: one for each block and each name under which effects are summed.

    Names are numbered from the last one, −1, as they are the last of a tally.
    """

    def __init__(self, effects: Sequence[Effect]) -> None:
        names = sum_names(effects)
        self._numbers = {name: number - len(names) for number, name in enumerate(names)}
        self._places: dict[tuple[int, int], int] = {}
        self._count: list[int] = []

    def add(self, block: int, effect: Effect, part: str, queries: int) -> int:
        """The row of a block and an effect or its part, with so many more queries.

        −1 if the effect has no such part.
        """
        number = self._numbers.get(part_name(effect.id, part) if part else effect.id)
        if number is None:
            return -1
        row = self._places.setdefault((block, number), len(self._count))
        if row == len(self._count):
            self._count.append(0)
        self._count[row] += queries
        return row

    def columns(self) -> tuple[ndarray, ndarray, ndarray]:
        """Block, name and queries of each row."""
        block, name = np.array(list(self._places), np.int64).reshape(-1, 2).T
        return block, name, np.array(self._count, np.int64)


class _NamedTokens(NamedTuple):
    effect: Effect
    block: int
    start: int
    """The window's first place in the padded batch."""
    sides: tuple[Pairs, ...]
    """Targets, controls, and matched controls if there are any."""

    @property
    def queries(self) -> Int[ndarray, " query"]:
        """Flat, as `[window position]` of the padded batch."""
        return self.start + np.unique(self.sides[0].query)


def _named_tokens(
    batch: Batch, window_pairs: Sequence[WindowPairs], effects: Sequence[Effect], seed: int
) -> Iterator[_NamedTokens]:
    length = max(map(len, batch.windows))
    for row, block in enumerate(batch.blocks):
        for index, cells in find_all(window_pairs[row], effects, seed):
            second = () if cells.matched_control is None else (cells.matched_control,)
            sides = (cells.targets, cells.controls, *second)
            yield _NamedTokens(effects[index], int(block), row * length, sides)


def _named_queries(
    named_tokens: Sequence[_NamedTokens],
    tokens: Int[ndarray, " token"],
    queries: Int[ndarray, " query"],
    rows: EffectRows,
    *,
    after: int,
) -> NamedTokenQueries:
    """The named queries of a batch, which stand behind so many others."""
    query_numbers: list[ndarray] = []
    rows_of_parts: list[ndarray] = []
    cell_rows: tuple[list[ndarray], ...] = ([_NONE], [_NONE], [_NONE])
    columns: tuple[list[ndarray], ...] = ([_NONE], [_NONE], [_NONE])
    start = 0
    for item in named_tokens:
        item_queries = item.queries
        count = len(item_queries)
        part_rows = [
            rows.add(item.block, item.effect, part, count) for part in ("", MATCHED_CONTROL, SELF)
        ]
        rows_of_parts.append(np.repeat(np.array(part_rows)[:, None], count, 1))
        query_numbers.append(after + np.searchsorted(queries, item_queries))
        for rows_of_side, column, cells in zip(cell_rows, columns, item.sides, strict=False):
            rows_of_side.append(start + np.searchsorted(item_queries, item.start + cells.query))
            column.append(np.searchsorted(tokens, cells.key))
        start += count
    means = (
        _means(np.concatenate(rows_of_side), np.concatenate(column), (start, len(tokens)))
        for rows_of_side, column in zip(cell_rows, columns, strict=True)
    )
    return NamedTokenQueries(
        torch.from_numpy(np.concatenate(query_numbers)),
        torch.from_numpy(np.concatenate(rows_of_parts, 1)),
        *means,
    )


def _means(
    query: Int[ndarray, " cell"], token: Int[ndarray, " cell"], shape: tuple[int, int]
) -> Tensor:
    """The sparse matrix whose rows are means over the cells of each ask."""
    count = np.bincount(query, minlength=shape[0])
    return summing_matrix(query, token, 1 / count[query], shape)


def _windows_with_queries(batch: Batch, effects: Sequence[Effect]) -> list[tuple[int, ndarray]]:
    """The queries of each window of text at which heads are asked what they look at themselves."""
    if not any(effect.top_key is not None for effect in effects):
        return []
    windows = []
    for row, window in enumerate(batch.windows):
        queries = np.flatnonzero(turns(window) * EVERY < len(window))
        queries = queries[queries > 1]  # the second token sees none but itself and the first
        if window.stimulus == TEXT.name and len(queries):
            windows.append((row, queries))
    return windows


def _top_key_queries(
    batch: Batch,
    effects: Sequence[Effect],
    window_queries: Sequence[tuple[int, ndarray]],
    tokens: Int[ndarray, " token"],
    rows: EffectRows,
) -> TopKeyQueries:
    windows: list[Window] = [batch.windows[row] for row, _ in window_queries]
    columns = np.full((len(window_queries), max(map(len, windows))), -1)
    count, orders, start = np.zeros((len(window_queries), len(tokens)), np.float32), [], 0
    for number, (window, (_, queries)) in enumerate(zip(windows, window_queries, strict=True)):
        columns[number, 1 : len(window)] = np.searchsorted(tokens, window.tokens[1:])
        count[number] = np.bincount(columns[number, 1 : len(window)], minlength=len(tokens))
        orders.append(start + np.argsort(turns(window)[queries]))
        start += len(queries)
    part_rows = tuple(
        tuple(
            rows.add(int(batch.blocks[row]), effect, part, len(queries))
            for row, queries in window_queries
        )
        for part in ("", MATCHED_CONTROL)
        for effect in effects
        if effect.top_key is not None
    )
    return TopKeyQueries(
        requests=tuple(QueryRows(row, queries) for row, queries in window_queries),
        window=torch.from_numpy(
            np.repeat(np.arange(len(window_queries)), [len(q) for _, q in window_queries])
        ),
        order=torch.from_numpy(np.concatenate(orders)),
        tokens=torch.from_numpy(columns),
        count=torch.from_numpy(count),
        rows=part_rows,
    )
