"""Queries of a head that are shown: one from each tenth of them, the best of the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy import ndarray
from numpy.random import Generator

from headscope.measure.example import STEPS, ExampleRequest
from headscope.measure.query_masses import Queries, Reading
from headscope.stimuli.text import TEXT

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
        readable = [_readable(reading, want.relation, *candidate) for candidate in candidates_at]
        best = readable.index(True) if any(readable) else 0
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
    """True where the query and its targets are text that a person can read."""
    strings = reading.sample[window].strings
    positions = [query, *target_keys(reading, relation, window, query).tolist()]
    texts = [strings[position].strip() for position in positions]
    return all(text and text.isprintable() and "\ufffd" not in text for text in texts)
