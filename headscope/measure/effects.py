"""What the effects ask of a batch: queries, tokens, and how their values add up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.effect_names import effect_names, second_places, self_places
from headscope.models.engines.engine import Picked, Read, Selves
from headscope.relations.asked import turns
from headscope.relations.writes.effect import Effect, Sides, find_tokens

EVERY = 4
"""Of natural text one query of so many is asked what each head does to the token that it looks at:
ten thousand of a common run, and the others would say the same at four times the cost."""


@dataclass(frozen=True, eq=False)
class Named:
    """Queries at which the text names tokens, and the means over them."""

    row: Int[Tensor, " ask"]
    place: Int[Tensor, " ask"]
    """Which of the batch's asked queries."""
    second_row: Int[Tensor, " ask"]
    """The row of its second control; −1 where it has none."""
    self_row: Int[Tensor, " ask"]
    """The row of what its own position gives; −1 where that is not asked."""
    target: Tensor
    """`[ask token]`, sparse: each row is the mean over its tokens."""
    control: Tensor
    second: Tensor
    """Likewise; rows without a second control are empty."""


@dataclass(frozen=True, eq=False)
class Own:
    """Queries at which every head is asked about the token that it looks at itself.

    They are the first of the batch's asked queries, window after window.
    """

    looks: tuple[Picked, ...]
    """Their rows of attention, a window each."""
    window: Int[Tensor, " query"]
    """Which of the looks a query belongs to."""
    drawn: Int[Tensor, " query"]
    """The queries of each window in an order that is drawn, window after window."""
    tokens: Int[Tensor, "look position"]
    """Each position's place among the batch's tokens; −1 for the first and beyond the text."""
    count: Float[Tensor, "look token"]
    """At how many of each text's positions from the second on a token stands."""
    rows: tuple[tuple[int, ...], ...]
    """For each look effect the row of each window; those of the second controls come after."""


@dataclass(frozen=True, eq=False)
class Asked:
    """All that the effects ask of a batch."""

    queries: Int[Tensor, " query"]
    """Flat, as `[window position]` of the padded batch."""
    tokens: Int[Tensor, " token"]
    """Distinct; all that are asked about anywhere in the batch."""
    named: Named | None
    own: Own | None
    block: Int[ndarray, " row"]
    effect: Int[ndarray, " row"]
    """The place in `effect_names`."""
    count: Int[ndarray, " row"]
    """Queries of each row, whatever the heads do there."""
    names: int
    """How many of `effect_names` there are."""
    selves: tuple[Selves, ...] = ()
    """The named queries, window by window, where an effect asks what they take from themselves."""

    @property
    def looks(self) -> tuple[Read, ...]:
        """What is read of attention."""
        return (*(() if self.own is None else self.own.looks), *self.selves)

    def to(self, device: torch.device | str) -> Asked:
        """The same with its tensors on a device."""
        return replace(
            self,
            queries=self.queries.to(device),
            tokens=self.tokens.to(device),
            named=None if self.named is None else replace(self.named, **_on(self.named, device)),
            own=None if self.own is None else replace(self.own, **_on(self.own, device)),
        )


def ask(batch: Batch, effects: Sequence[Effect], *, seed: int) -> Asked | None:
    """What effects ask of a batch; None where it is nothing.

    Draws are seeded by the run's seed, the effect and the window's own text.
    """
    length, rows = max(map(len, batch.windows)), _Rows()
    names = len(effect_names(effects))
    named, own = list(_found(batch, effects, seed)), _own_queries(batch, effects)
    if not named and not own:
        return None
    first = np.concatenate([_NONE, *(window * length + queries for window, queries in own)])
    others = [found.window * length + found.sides.targets.query for found in named]
    # a query of both kinds stands in both parts: few do, and each part stays simple
    queries = np.concatenate([first, np.unique(np.concatenate([_NONE, *others]))])
    texts = [batch.windows[window].tokens[1:] for window, _ in own]
    texts += [side.token for found in named for side in found.sides if side is not None]
    tokens = np.unique(np.concatenate(texts))
    of_own = _own(batch, effects, own, tokens, rows) if own else None
    asked = _Queries(tokens, queries[len(first) :], second_places(effects), self_places(effects))
    of_text = _named(batch, named, asked, rows) if named else None
    if of_text is not None:
        of_text = replace(of_text, place=of_text.place + len(first))
    selves = _selves(asked.queries, length) if any(each.moved for each in effects) else ()
    return Asked(
        torch.from_numpy(queries),
        torch.from_numpy(tokens),
        of_text,
        of_own,
        *rows.columns(),
        names,
        selves,
    )


_NONE = np.zeros(0, np.int64)


def _selves(queries: Int[ndarray, " query"], length: int) -> tuple[Selves, ...]:
    windows = queries // length
    return tuple(Selves(int(w), queries[windows == w] - w * length) for w in np.unique(windows))


class _Rows:
    """The rows of a batch's sums: one for each block and effect."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], int] = {}
        self._count: list[int] = []

    def add(self, block: int, effect: int, queries: int) -> int:
        """The row of a block and an effect, with so many more queries."""
        row = self._places.setdefault((block, effect), len(self._count))
        if row == len(self._count):
            self._count.append(0)
        self._count[row] += queries
        return row

    def columns(self) -> tuple[ndarray, ndarray, ndarray]:
        """Block, effect and queries of each row."""
        block, effect = np.array(list(self._places), np.int64).reshape(-1, 2).T
        return block, effect, np.array(self._count, np.int64)


class _Found(NamedTuple):
    window: int
    effect: int
    sides: Sides


class _Queries(NamedTuple):
    """What named effects are asked about in a batch, and where their second controls stand."""

    tokens: Int[ndarray, " token"]
    queries: Int[ndarray, " query"]
    second: dict[int, int]
    selves: dict[int, int]


def _found(batch: Batch, effects: Sequence[Effect], seed: int) -> Iterator[_Found]:
    for row, window in enumerate(batch.windows):
        text = _number("\0".join(window.strings))
        for index, effect in enumerate(effects):
            found = find_tokens(effect, window, [seed, text, _number(effect.id)])
            if found is not None:
                yield _Found(row, index, found)


def _named(
    batch: Batch,
    found: Sequence[_Found],
    among: _Queries,
    rows: _Rows,
) -> Named:
    length, start = max(map(len, batch.windows)), 0
    places: tuple[list[ndarray], ...] = ([], [], [], [])
    sides: tuple[list[ndarray], ...] = ([_NONE], [_NONE], [_NONE])
    columns: tuple[list[ndarray], ...] = ([_NONE], [_NONE], [_NONE])
    for each in found:
        asked = np.unique(each.sides.targets.query)
        block, second, mine = int(batch.blocks[each.window]), -1, -1
        own = rows.add(block, each.effect, len(asked))
        if each.sides.second is not None:
            second = rows.add(block, among.second[each.effect], len(asked))
        if each.effect in among.selves:
            mine = rows.add(block, among.selves[each.effect], len(asked))
        place = np.searchsorted(among.queries, each.window * length + asked)
        own_row, second_row, self_row = (np.full(len(asked), row) for row in (own, second, mine))
        of_asks = (own_row, place, second_row, self_row)
        for column, values in zip(places, of_asks, strict=True):
            column.append(values)
        for side, column, cells in zip(sides, columns, each.sides, strict=True):
            if cells is not None:
                side.append(start + np.searchsorted(asked, cells.query))
                column.append(np.searchsorted(among.tokens, cells.token))
        start += len(asked)
    means = (
        _means(np.concatenate(side), np.concatenate(column), (start, len(among.tokens)))
        for side, column in zip(sides, columns, strict=True)
    )
    joined = (torch.from_numpy(np.concatenate(each)) for each in places)
    return Named(*joined, *means)


def _means(
    ask: Int[ndarray, " cell"], token: Int[ndarray, " cell"], shape: tuple[int, int]
) -> Tensor:
    """The sparse matrix whose rows are means over the cells of each ask."""
    order = np.argsort(ask, kind="stable")
    count = np.bincount(ask, minlength=shape[0])
    return torch.sparse_csr_tensor(
        torch.from_numpy(np.concatenate([[0], count.cumsum()])),
        torch.from_numpy(token[order]),
        torch.from_numpy(1 / count[ask[order]]).float(),
        size=shape,
        check_invariants=False,
    )


def _own_queries(batch: Batch, effects: Sequence[Effect]) -> list[tuple[int, ndarray]]:
    """The queries of each window of text at which heads are asked what they look at themselves."""
    if not any(effect.looked is not None for effect in effects):
        return []
    found = []
    for row, window in enumerate(batch.windows):
        queries = np.flatnonzero(turns(window) * EVERY < len(window))
        queries = queries[queries > 1]  # the second token sees none but itself and the first
        if window.stimulus == "text" and len(queries):
            found.append((row, queries))
    return found


def _own(
    batch: Batch,
    effects: Sequence[Effect],
    own: Sequence[tuple[int, ndarray]],
    tokens: Int[ndarray, " token"],
    rows: _Rows,
) -> Own:
    windows: list[Window] = [batch.windows[row] for row, _ in own]
    columns = np.full((len(own), max(map(len, windows))), -1)
    count, drawn, start = np.zeros((len(own), len(tokens)), np.float32), [], 0
    for number, (window, (_, queries)) in enumerate(zip(windows, own, strict=True)):
        columns[number, 1 : len(window)] = np.searchsorted(tokens, window.tokens[1:])
        count[number] = np.bincount(columns[number, 1 : len(window)], minlength=len(tokens))
        drawn.append(start + np.argsort(turns(window)[queries]))
        start += len(queries)
    looked = [index for index, effect in enumerate(effects) if effect.looked is not None]
    second = second_places(effects)
    places = [*looked, *(second[index] for index in looked)]
    own_rows = tuple(
        tuple(rows.add(int(batch.blocks[row]), place, len(queries)) for row, queries in own)
        for place in places
    )
    return Own(
        looks=tuple(Picked(row, queries) for row, queries in own),
        window=torch.from_numpy(np.repeat(np.arange(len(own)), [len(q) for _, q in own])),
        drawn=torch.from_numpy(np.concatenate(drawn)),
        tokens=torch.from_numpy(columns),
        count=torch.from_numpy(count),
        rows=own_rows,
    )


def _on(asked: Named | Own, device: torch.device | str) -> dict[str, Any]:
    values = {each.name: getattr(asked, each.name) for each in fields(asked)}
    return {name: x.to(device) for name, x in values.items() if isinstance(x, Tensor)}


def _number(text: str) -> int:
    """A number that stands for a text, on every machine the same."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())
