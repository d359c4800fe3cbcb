"""The attention on the targets of each single query of a sample, which no tally keeps.

Queries that are shown are one from each tenth of a head's, the best of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.random import Generator

from headscope.corpus.window import Window
from headscope.measure.example import STEPS, ExampleRequest
from headscope.measure.progress import OnProgress
from headscope.measure.sample_patterns import SamplePatterns, WindowPatterns, read_patterns
from headscope.models.load import Model
from headscope.relations.pairs import Pairs, no_pairs
from headscope.relations.relation import Relation
from headscope.stimuli.text import TEXT

PASSES = 2
"""Times that a window of a sample is read at most: for the masses of all queries, and for what is
shown of those that are chosen."""


class Reading:
    """A sample of windows, what the relations ask about in it, and its patterns."""

    def __init__(
        self,
        model: Model,
        sample: Sequence[Window],
        relations: Sequence[Relation],
        progress: OnProgress,
        sample_patterns: SamplePatterns,
    ) -> None:
        self.sample, self.relations = sample, relations
        self.targets = cache(self._targets)
        self._model, self._progress, self._sample_patterns = model, progress, sample_patterns
        self._done, self._total = 0, PASSES * self._unread(range(len(sample)))

    def _targets(self, window: int, relation: int) -> Pairs:
        scored = self.relations[relation]
        known = self.sample[window].stimulus in scored.stimuli
        return scored.pairs(self.sample[window]) if known else no_pairs()

    def patterns(self, members: Sequence[int]) -> Iterator[tuple[int, WindowPatterns]]:
        """The patterns of the chosen windows of the sample, by their numbers."""
        self._total -= self._unread(range(len(self.sample))) - self._unread(members)
        for number in members:
            window = self.sample[number]
            patterns = self._sample_patterns.of(window)
            if patterns is None:
                patterns = read_patterns(self._model, window)
                self._done += len(window)
                self._progress(self._done, self._total)
            yield number, patterns

    def _unread(self, members: Sequence[int]) -> int:
        """Tokens of the windows whose patterns were not kept."""
        windows = (self.sample[number] for number in members)
        return sum(len(window) for window in windows if self._sample_patterns.of(window) is None)


class Queries(NamedTuple):
    """Queries with the attention on their targets."""

    mass: Float[ndarray, " query"]
    window: Int[ndarray, " query"]
    query: Int[ndarray, " query"]


_NONE = Queries(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))


def masses(reading: Reading, requests: Sequence[ExampleRequest]) -> list[Queries]:
    """For each requested head and relation the mass of every query of the sample."""
    parts: list[list[Queries]] = [[_NONE] for _ in requests]
    for number, patterns in reading.patterns(range(len(reading.sample))):
        for want, queries in zip(requests, parts, strict=True):
            targets = reading.targets(number, want.relation)
            if len(targets):
                owners, term = np.unique(targets.owner, return_inverse=True)
                values = patterns.values(want.layer, want.head, targets.query, targets.key)
                window = np.full(len(owners), number)
                queries.append(Queries(np.bincount(term, values), window, owners))
    return [Queries(*map(np.concatenate, zip(*queries, strict=True))) for queries in parts]


DECILES = 10
MIN_BEST = 8
"""Of the best queries so many are tried at least, to find one that can be read."""
NEARBY = 16
"""Of so many queries with about the same mass the first that can be read is shown."""


@dataclass(frozen=True)
class ExampleQuery:
    """A query of a head that is shown, or with −1 for the query a text."""

    layer: int
    head: int
    relation: int | None
    kind: str
    mass: float
    window: int
    query: int
    masses: tuple[int, ...] = ()
    """The queries that it was chosen from by their masses; see `Example.masses`."""


def choose_queries(
    reading: Reading, want: ExampleRequest, queries: Queries, rng: Generator
) -> Iterator[ExampleQuery]:
    """The best query and one of each further tenth, from different windows where there are.

    Natural text goes before sentences made for a relation where the tenth has both, and tokens
    that can be read before fragments of characters.
    """
    order = np.lexsort((rng.random(len(queries.mass)), -queries.mass))
    natural = np.array([window.stimulus == TEXT.name for window in reading.sample])
    counts = np.histogram(queries.mass.clip(0, 1), STEPS, (0, 1))[0]
    masses = tuple(counts.tolist())
    used: set[int] = set()
    windows: set[int] = set()
    for kind, start, end in _kinds(len(order)):
        tenth = [i for i in order[start:end].tolist() if i not in used]
        of_text = [i for i in tenth if natural[queries.window[i]]]
        nearby = (of_text or tenth)[: max(8, len(order) // 16)]
        elsewhere = [i for i in nearby if queries.window[i] not in windows]
        candidates = (elsewhere or nearby)[:NEARBY]
        if not candidates:
            continue
        candidates_at = [(int(queries.window[i]), int(queries.query[i])) for i in candidates]
        readable = (_readable(reading, want.relation, *candidate) for candidate in candidates_at)
        best = next((i for i, can_be_read in enumerate(readable) if can_be_read), 0)
        used.add(candidates[best])
        windows.add(candidates_at[best][0])
        mass = float(queries.mass[candidates[best]])
        yield ExampleQuery(
            want.layer, want.head, want.relation, kind, mass, *candidates_at[best], masses
        )


def target_keys(
    reading: Reading, relation: int, window: int, query: int
) -> Int[ndarray, " target"]:
    """The keys that a query should look at."""
    pairs = reading.targets(window, relation)
    return np.unique(pairs.key[pairs.owner == query])


def _kinds(size: int) -> Iterator[tuple[str, int, int]]:
    """Names and bounds of the tenths of so many queries, the highest first."""
    if not size:
        return
    yield "best", 0, max(MIN_BEST, size // DECILES)
    for k in range(1, DECILES):
        start = size * (2 * k + 1) // (2 * DECILES)  # from the middle of each tenth to its end
        yield f"decile {k + 1}", start, max(start + 1, size * (k + 1) // DECILES)


def _readable(reading: Reading, relation: int, window: int, query: int) -> bool:
    strings = reading.sample[window].strings
    positions = [query, *target_keys(reading, relation, window, query).tolist()]
    texts = [strings[position].strip() for position in positions]
    return all(text and text.isprintable() and "\ufffd" not in text for text in texts)
