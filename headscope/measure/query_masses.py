"""The attention on the targets of each single query of a sample, which no tally keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.example import ExampleRequest
from headscope.measure.gather import Cells, CellsOf, PatternBuffer, PatternKey, T, read_cells
from headscope.measure.progress import OnProgress
from headscope.models.load import Model
from headscope.relations.pairs import Pairs, no_pairs
from headscope.relations.relation import Relation

PASSES = 2
"""Times that a sample is read at most: for the masses of all queries, and for what is shown of
those that are chosen."""


class Reading:
    """A sample of windows, what the relations ask about in it, and how far it has been read."""

    def __init__(
        self,
        model: Model,
        sample: Sequence[Window],
        relations: Sequence[Relation],
        batch_tokens: int,
        progress: OnProgress,
    ) -> None:
        self.model, self.sample, self.relations = model, sample, relations
        self.targets = cache(self._targets)
        self._batch_tokens, self._progress = batch_tokens, progress
        self._done, self._total = 0, PASSES * sum(map(len, sample))

    def _targets(self, window: int, relation: int) -> Pairs:
        scored = self.relations[relation]
        known = self.sample[window].stimulus in scored.stimuli
        return scored.pairs(self.sample[window]) if known else no_pairs()

    def only_once(self) -> None:
        """It will not be read a second time."""
        self._total //= PASSES

    def read(self, members: Sequence[int], cells_of: CellsOf[T]) -> Iterator[tuple[T, ndarray]]:
        """The attention in the cells that are asked for in the chosen windows of the sample."""
        windows = [self.sample[i] for i in members]
        self._total -= sum(map(len, self.sample)) - sum(map(len, windows))
        return read_cells(
            self.model,
            windows,
            lambda rows, length: cells_of([members[i] for i in rows], length),
            batch_tokens=self._batch_tokens,
            progress=self._advance,
        )

    def _advance(self, tokens: int) -> None:
        self._done += tokens
        self._progress(self._done, self._total)


class Queries(NamedTuple):
    """Queries with the attention on their targets, in the order in which they were read."""

    mass: Float[ndarray, " query"]
    window: Int[ndarray, " query"]
    query: Int[ndarray, " query"]


_NONE = Queries(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))


class _TargetCells(NamedTuple):
    """A relation's targets in a batch: cells, flat within head 0, and what they add up to."""

    flat: Int[ndarray, " cell"]
    term: Int[ndarray, " cell"]
    """Which of the queries each cell belongs to."""
    window: Int[ndarray, " query"]
    query: Int[ndarray, " query"]


def masses(
    reading: Reading, requests: Sequence[ExampleRequest], buffer: PatternBuffer | None = None
) -> list[Queries]:
    """For each requested head and relation the mass of every query of the sample.

    Args:
        reading: of the sample.
        requests: heads and relations.
        buffer: keeps the patterns of these heads, if given; nothing is read a second time then.
    """
    heads = reading.model.heads

    def cells_of(members: Sequence[int], length: int) -> Iterator[Cells[Any]]:
        cells_by_relation = {
            relation: _target_cells(
                [reading.targets(i, relation) for i in members], members, heads, length
            )
            for relation in {want.relation for want in requests}
        }
        for number, want in enumerate(requests):
            cells = cells_by_relation[want.relation]
            if len(cells.flat):
                yield Cells(want.layer, want.head, cells.flat, (number, cells))
        if buffer is not None:
            yield from buffer.all_cells(members, length)

    parts: list[list[Queries]] = [[_NONE] for _ in requests]
    if buffer is not None:
        reading.only_once()
    for what, values in reading.read(range(len(reading.sample)), cells_of):
        if buffer is not None and isinstance(what, PatternKey):
            buffer.store(what, values)
            continue
        number, cells = what
        parts[number].append(Queries(np.bincount(cells.term, values), cells.window, cells.query))
    return [Queries(*map(np.concatenate, zip(*queries, strict=True))) for queries in parts]


def _target_cells(
    targets: Sequence[Pairs], members: Sequence[int], heads: int, length: int
) -> _TargetCells:
    """The targets of a relation in each window of a batch, put together."""
    row = np.repeat(np.arange(len(members)), [len(pairs) for pairs in targets])
    query, key, owner = (
        np.concatenate([getattr(pairs, name) for pairs in targets])
        for name in ("query", "key", "owner")
    )
    owners, term = np.unique(row * length + owner, return_inverse=True)
    return _TargetCells(
        flat=(row * heads * length + query) * length + key,
        term=term,
        window=np.asarray(members)[owners // length],
        query=owners % length,
    )
