"""The attention on the targets of each single query of a sample, which no tally keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.example import Wanted
from headscope.measure.gather import Ask, Cells, T, read_cells
from headscope.measure.kept import Kept, Place
from headscope.models.load import Model
from headscope.relations.pairs import Pairs, no_pairs
from headscope.relations.relation import Relation

Progress = Callable[[int, int], None]
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
        progress: Progress,
    ) -> None:
        self.model, self.sample, self.relations = model, sample, relations
        self.targets = cache(self._targets)
        self._batch_tokens, self._progress = batch_tokens, progress
        self._done, self._total = 0, PASSES * sum(map(len, sample))

    def _targets(self, window: int, relation: int) -> Pairs:
        asked = self.relations[relation]
        known = self.sample[window].stimulus in asked.stimuli
        return asked.pairs(self.sample[window]) if known else no_pairs()

    def only_once(self) -> None:
        """It will not be read a second time."""
        self._total //= PASSES

    def read(self, chosen: Sequence[int], ask: Ask[T]) -> Iterator[tuple[T, ndarray]]:
        """The attention in the cells that are asked for in the chosen windows of the sample."""
        windows = [self.sample[i] for i in chosen]
        self._total -= sum(map(len, self.sample)) - sum(map(len, windows))
        return read_cells(
            self.model,
            windows,
            lambda rows, length: ask([chosen[i] for i in rows], length),
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


class _Asked(NamedTuple):
    """A relation's targets in a batch: cells, flat within head 0, and what they add up to."""

    flat: Int[ndarray, " cell"]
    place: Int[ndarray, " cell"]
    """Which of the queries each cell belongs to."""
    window: Int[ndarray, " query"]
    query: Int[ndarray, " query"]


def masses(reading: Reading, wanted: Sequence[Wanted], kept: Kept | None = None) -> list[Queries]:
    """For each wanted head and relation the mass of every query of the sample.

    Args:
        reading: of the sample.
        wanted: heads and relations.
        kept: keeps the patterns of these heads, if given; nothing is read a second time then.
    """
    heads = reading.model.heads

    def ask(members: Sequence[int], length: int) -> Iterator[Cells[Any]]:
        asked = {
            relation: _asked(
                [reading.targets(i, relation) for i in members], members, heads, length
            )
            for relation in {want.relation for want in wanted}
        }
        for number, want in enumerate(wanted):
            own = asked[want.relation]
            if len(own.flat):
                yield Cells(want.layer, want.head, own.flat, (number, own))
        if kept is not None:
            yield from kept.ask(members, length)

    parts: list[list[Queries]] = [[_NONE] for _ in wanted]
    if kept is not None:
        reading.only_once()
    for what, values in reading.read(range(len(reading.sample)), ask):
        if kept is not None and isinstance(what, Place):
            kept.keep(what, values)
            continue
        number, own = what
        parts[number].append(Queries(np.bincount(own.place, values), own.window, own.query))
    return [Queries(*map(np.concatenate, zip(*each, strict=True))) for each in parts]


def _asked(targets: Sequence[Pairs], members: Sequence[int], heads: int, length: int) -> _Asked:
    """The targets of a relation in each window of a batch, put together."""
    row = np.repeat(np.arange(len(members)), [len(pairs) for pairs in targets])
    query, key, owner = (
        np.concatenate([getattr(pairs, name) for pairs in targets])
        for name in ("query", "key", "owner")
    )
    owners, place = np.unique(row * length + owner, return_inverse=True)
    return _Asked(
        flat=(row * heads * length + query) * length + key,
        place=place,
        window=np.asarray(members)[owners // length],
        query=owners % length,
    )
