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

from headscope.measure.batches import Batch
from headscope.measure.selection import find_all
from headscope.measure.sparse import summing_matrix
from headscope.models.engines.engine import QueryRows, Request, SelfEntries
from headscope.relations.effects import Effect, sum_names
from headscope.relations.pairs import Pairs
from headscope.relations.parts import MATCHED_CONTROL, SELF, part_name
from headscope.relations.query_sampling import turns
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
    """Rows of attention, a window each."""
    window: Int[Tensor, " query"]
    """The request that each query belongs to."""
    order: Int[Tensor, " query"]
    """The queries of each window in an order that is drawn, window after window."""
    tokens: Int[Tensor, "look position"]
    """Each position's place among the batch's tokens; −1 for the first and beyond the text."""
    count: Float[Tensor, "look token"]
    """Number of each text's positions, from the second on, at which a token stands."""
    rows: tuple[Int[ndarray, " query"], ...]
    """For each look effect the row of each query; those of the matched control come after."""


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
        top_key = () if self.top_key is None else self.top_key.requests
        return (*top_key, *self.selves)


def effect_queries(
    batch: Batch, window_pairs: Sequence[WindowPairs], effects: Sequence[Effect], *, seed: int
) -> EffectQueries | None:
    """The queries of effects in a batch; None if it has none.

    Draws are seeded by the run's seed, the effect and the window's own text.
    """
    length = max(map(len, batch.windows))
    rows = EffectRows(effects)
    named_tokens = list(_named_tokens(batch, window_pairs, effects, seed))
    # the queries of each window of text at which heads are asked about what they attend to most
    asks_top_key = any(effect.top_key is not None for effect in effects)
    windows: list[tuple[int, ndarray]] = []
    for row, window in enumerate(batch.windows):
        if not asks_top_key or window.stimulus != TEXT.name:
            continue
        queries = np.flatnonzero(turns(window) * EVERY < len(window))
        queries = queries[queries > 1]  # the second token sees only itself and the first
        if len(queries):
            windows.append((row, queries))
    if not named_tokens and not windows:
        return None
    # queries that ask for the strongest key come first, those with named tokens behind them
    first = np.concatenate([_NONE, *(row * length + queries for row, queries in windows)])
    others = np.unique(np.concatenate([_NONE, *(item.queries for item in named_tokens)]))
    # directions are computed once for each distinct token, of the windows or named
    named_and_read = [batch.windows[row].tokens[1:] for row, _ in windows]
    for tokens_of_effect in named_tokens:
        named_and_read.extend(side.key for side in tokens_of_effect.sides)
    tokens = np.unique(np.concatenate(named_and_read))
    top_key = _top_key_queries(batch, effects, windows, tokens, rows) if windows else None
    named_queries = None
    if named_tokens:
        named_queries = _named_queries(named_tokens, tokens, others, rows, after=len(first))
    # what a position gives itself is read only if an effect leaves it out
    selves: list[SelfEntries] = []
    if any(effect.moved for effect in effects):
        for row in np.unique(others // length):
            in_window = others[others // length == row]
            selves.append(SelfEntries(int(row), in_window % length))
    block, effect, count = rows.columns()
    return EffectQueries(
        # a query of both kinds stands in both parts: few do, and each part stays simple
        queries=torch.from_numpy(np.concatenate([first, others])),
        tokens=torch.from_numpy(tokens),
        named_tokens=named_queries,
        top_key=top_key,
        block=block,
        effect=effect,
        count=count,
        selves=tuple(selves),
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
        name = part_name(effect.id, part) if part else effect.id
        number = self._numbers.get(name)
        if number is None:
            return -1
        row = self._places.setdefault((block, number), len(self._count))
        if row == len(self._count):
            self._count.append(0)
        self._count[row] += queries
        return row

    def columns(self) -> tuple[ndarray, ndarray, ndarray]:
        """Block, name and queries of each row."""
        places = np.array(list(self._places), np.int64)
        block, name = places.reshape(-1, 2).T
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
    for row in range(len(batch.windows)):
        for index, cells in find_all(window_pairs[row], effects, seed):
            sides: tuple[Pairs, ...] = (cells.targets, cells.controls)
            if cells.matched_control is not None:
                sides = (*sides, cells.matched_control)
            # a window that is cut into stretches has queries in several blocks
            for block, _ in batch.blocks_of(row, cells.targets.query):
                in_block = tuple(_of_block(batch, row, block, side) for side in sides)
                yield _NamedTokens(
                    effect=effects[index],
                    block=block,
                    start=row * length,
                    sides=in_block,
                )


def _of_block(batch: Batch, row: int, block: int, pairs: Pairs) -> Pairs:
    """The pairs of a window whose queries lie in a block."""
    return pairs.where(batch.blocks_of_queries(row)[pairs.query] == block)


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
    sides = [_SideCells([_NONE], [_NONE]) for _ in ("target", "control", "second")]
    start = 0
    # of each named query its place, its rows, and the tokens of its sides
    for item in named_tokens:
        queries_of_item = item.queries
        count = len(queries_of_item)
        parts = ("", MATCHED_CONTROL, SELF)
        part_rows = [rows.add(item.block, item.effect, part, count) for part in parts]
        rows_of_parts.append(np.repeat(np.array(part_rows)[:, None], count, 1))
        query_numbers.append(after + np.searchsorted(queries, queries_of_item))
        for side, pairs in zip(sides, item.sides, strict=False):
            ask_numbers = np.searchsorted(queries_of_item, item.start + pairs.query)
            side.asks.append(start + ask_numbers)
            side.tokens.append(np.searchsorted(tokens, pairs.key))
        start += count
    # queries without tokens on a side have an empty row there
    target, control, second = (side.means((start, len(tokens))) for side in sides)
    return NamedTokenQueries(
        query=torch.from_numpy(np.concatenate(query_numbers)),
        rows=torch.from_numpy(np.concatenate(rows_of_parts, 1)),
        target=target,
        control=control,
        second=second,
    )


@dataclass(frozen=True)
class _SideCells:
    """Cells of one side of the named queries, a window's after another's."""

    asks: list[Int[ndarray, " cell"]]
    """Number of the named query of each cell."""
    tokens: list[Int[ndarray, " cell"]]

    def means(self, shape: tuple[int, int]) -> Tensor:
        """The sparse matrix `[ask token]` whose rows are means over the cells of each ask."""
        ask_numbers = np.concatenate(self.asks)
        token = np.concatenate(self.tokens)
        count = np.bincount(ask_numbers, minlength=shape[0])
        return summing_matrix(ask_numbers, token, 1 / count[ask_numbers], shape)


def _top_key_queries(
    batch: Batch,
    effects: Sequence[Effect],
    window_queries: Sequence[tuple[int, ndarray]],
    tokens: Int[ndarray, " token"],
    rows: EffectRows,
) -> TopKeyQueries:
    # tokens of each window by their number, and how often each occurs
    widest = max(len(batch.windows[row]) for row, _ in window_queries)
    tokens_of_window = np.full((len(window_queries), widest), -1)
    count = np.zeros((len(window_queries), len(tokens)), np.float32)
    orders = []
    start = 0
    for number, (row, queries) in enumerate(window_queries):
        window = batch.windows[row]
        numbers = np.searchsorted(tokens, window.tokens[1:])
        tokens_of_window[number, 1 : len(window)] = numbers
        count[number] = np.bincount(numbers, minlength=len(tokens))
        # in the drawn order each query's partner is the next one
        drawn_order = np.argsort(turns(window)[queries])
        orders.append(start + drawn_order)
        start += len(queries)
    # a row for each effect, and behind all of them those of their matched controls
    part_rows = []
    for part in ("", MATCHED_CONTROL):
        for effect in effects:
            if effect.top_key is not None:
                # a window that is cut into stretches has queries in several blocks
                of_queries = []
                for window_row, queries in window_queries:
                    of_window = np.empty(len(queries), np.int64)
                    for block, is_in_block in batch.blocks_of(window_row, queries):
                        of_window[is_in_block] = rows.add(
                            block, effect, part, int(is_in_block.sum())
                        )
                    of_queries.append(of_window)
                part_rows.append(np.concatenate(of_queries))
    query_counts = [len(queries) for _, queries in window_queries]
    window_of_query = np.repeat(np.arange(len(window_queries)), query_counts)
    return TopKeyQueries(
        requests=tuple(QueryRows(row, queries) for row, queries in window_queries),
        window=torch.from_numpy(window_of_query),
        order=torch.from_numpy(np.concatenate(orders)),
        tokens=torch.from_numpy(tokens_of_window),
        count=torch.from_numpy(count),
        rows=tuple(part_rows),
    )
