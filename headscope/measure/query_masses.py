"""The attention on the targets of each single query of a sample, which no tally keeps.

Queries that are shown are one from each tenth of a head's, the best of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.random import Generator

from headscope.corpus.window import Window
from headscope.measure.example import STEPS, ExampleRequest
from headscope.measure.gather import (
    Cells,
    CellsOf,
    PatternBuffer,
    SamplePatterns,
    T,
    is_read_alone,
    read_cells,
    read_patterns,
)
from headscope.measure.progress import OnProgress
from headscope.models.load import Model
from headscope.relations.pairs import Pairs, no_pairs
from headscope.relations.relation import Relation
from headscope.stimuli.text import TEXT

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

    def fill(self, buffer: PatternBuffer, sample_patterns: SamplePatterns | None) -> None:
        """Read into a buffer the patterns of the sample, but for those that were kept before."""
        missing = []
        for i, window in enumerate(self.sample):
            patterns = None if sample_patterns is None else sample_patterns.of(window)
            if patterns is None:
                missing.append(i)
            else:
                buffer.take(i, patterns)
        self._total = sum(len(self.sample[i]) for i in missing)
        for i in missing:
            if is_read_alone(self.sample[i]):
                buffer.take(i, read_patterns(self.model, self.sample[i]))
                self._advance(len(self.sample[i]))
        together = [i for i in missing if not is_read_alone(self.sample[i])]
        for key, values in self._cells(together, buffer.all_cells):
            buffer.store(key, values)

    def read(self, members: Sequence[int], cells_of: CellsOf[T]) -> Iterator[tuple[T, ndarray]]:
        """The attention in the cells that are asked for in the chosen windows of the sample."""
        self._total -= sum(map(len, self.sample)) - sum(len(self.sample[i]) for i in members)
        return self._cells(members, cells_of)

    def _cells(self, members: Sequence[int], cells_of: CellsOf[T]) -> Iterator[tuple[T, ndarray]]:
        together = [i for i in members if not is_read_alone(self.sample[i])]
        for group in (*([i] for i in members if i not in together), together):
            yield from read_cells(
                self.model,
                [self.sample[i] for i in group],
                partial(_cells_in, group, cells_of),
                batch_tokens=self._batch_tokens,
                progress=self._advance,
            )

    def _advance(self, tokens: int) -> None:
        self._done += tokens
        self._progress(self._done, self._total)


def _cells_in(
    group: Sequence[int], cells_of: CellsOf[T], rows: Sequence[int], length: int
) -> Iterable[Cells[T]]:
    return cells_of([group[i] for i in rows], length)


class Queries(NamedTuple):
    """Queries with the attention on their targets."""

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
    reading: Reading, requests: Sequence[ExampleRequest], source: PatternBuffer | Reading
) -> list[Queries]:
    """For each requested head and relation the mass of every query of the sample.

    Attention counts in half precision, as it is kept, wherever it comes from.
    """
    heads = reading.model.heads

    def cells_of(members: Sequence[int], length: int) -> Iterator[Cells[tuple[int, _TargetCells]]]:
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

    parts: list[list[Queries]] = [[_NONE] for _ in requests]
    for (number, cells), values in source.read(range(len(reading.sample)), cells_of):
        mass = np.bincount(cells.term, values.astype(np.float16))
        parts[number].append(Queries(mass, cells.window, cells.query))
    return [_in_order(queries) for queries in parts]


def _in_order(parts: Sequence[Queries]) -> Queries:
    """All queries, window by window, in whatever order these were read."""
    queries = Queries(*map(np.concatenate, zip(*parts, strict=True)))
    order = np.lexsort((queries.query, queries.window))
    return Queries(*(column[order] for column in queries))


def _target_cells(
    targets: Sequence[Pairs], members: Sequence[int], heads: int, length: int
) -> _TargetCells:
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
