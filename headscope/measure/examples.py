"""Examples of what a head does: a query from each tenth of its queries by mass, and a text.

What a head does on its best examples rarely matches what it does on all text, so both are shown.
They are cut out of the patterns of a sample of the run's windows, of long ones of their beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.random import Generator

from headscope.corpus.window import Window
from headscope.measure.example import (
    BEGINNING,
    STEPS,
    Example,
    ExampleRequest,
    excerpt,
    stretches_left_out,
)
from headscope.measure.example_reader import WindowPatterns
from headscope.progress import OnProgress, silent
from headscope.relations import all_stimuli
from headscope.relations.pairs import Pairs, no_pairs
from headscope.relations.query_sampling import LONG
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.natural_text import TEXT

QUICK_WINDOWS = 4
"""Windows of text that a quick run keeps, for examples and for the model's loss."""
DECILES = 10
MIN_BEST = 8
"""Least number of the best queries among which one that can be read is looked for."""
NEARBY = 16
"""Most queries with about the same mass among which one that can be read is looked for."""


def find_examples(
    patterns_of: Callable[[Window], WindowPatterns],
    windows: Sequence[Window],
    relations: Sequence[Relation],
    requests: Sequence[ExampleRequest],
    *,
    seed: int,
    progress: OnProgress = silent,
) -> list[Example]:
    """Examples of the heads that are asked for, in the order of the heads."""
    beginnings = [window.cut(LONG) for window in chosen_windows(windows)]
    sample = ExampleText(beginnings, relations)
    if not requests or not sample.windows:
        return []
    # queries of each head and relation by their mass, of which some are shown
    rng = np.random.default_rng(seed)
    masses = _masses(patterns_of, sample, requests, progress)
    choices: list[ExampleQuery] = []
    for want, queries in zip(requests, masses, strict=True):
        choices.extend(choose_queries(sample, want, queries, rng))
    # for each head the first natural text too, as what it does at its best queries is rare
    text = [i for i, window in enumerate(sample.windows) if window.stimulus == TEXT.name]
    heads = dict.fromkeys((want.layer, want.head) for want in requests)
    for layer, head in heads if text else ():
        ordinary = ExampleQuery(
            layer=layer,
            head=head,
            relation=None,
            kind="ordinary",
            mass=float("nan"),
            window=text[0],
            query=-1,
        )
        choices.append(ordinary)
    choices.sort(key=lambda choice: (choice.layer, choice.head))
    examples: dict[int, Example] = {}
    # window by window, so that the patterns of one are in memory at a time
    for number, window in enumerate(sample.windows):
        of_window = [i for i, choice in enumerate(choices) if choice.window == number]
        if not of_window:
            continue
        patterns = patterns_of(window)
        for i in of_window:
            examples[i] = _example(sample, choices[i], patterns)
    return [examples[i] for i in range(len(choices))]


def chosen_windows(windows: Sequence[Window]) -> Iterator[Window]:
    """Windows that examples are cut out of, taken evenly from those of each stimulus."""
    for row in all_stimuli().values():
        read = [window for window in windows if window.stimulus == row.name]
        count = min(row.example_windows, len(read))
        numbers = np.linspace(0, len(read) - 1, count).round()
        for number in np.unique(numbers):
            yield read[int(number)]


class ExampleText:
    """A sample of windows, and the cells of the relations in it."""

    def __init__(self, windows: Sequence[Window], relations: Sequence[Relation]) -> None:
        self.windows, self.relations = windows, relations
        self._found = [WindowPairs(window) for window in windows]

    def targets(self, window: int, relation: int) -> Pairs:
        """Targets of a relation in a window; none if it is not of its stimuli."""
        scored = self.relations[relation]
        known = self.windows[window].stimulus in scored.stimuli
        return self._found[window].targets(scored) if known else no_pairs()

    def target_keys(self, relation: int, window: int, query: int) -> Int[ndarray, " target"]:
        """The keys that a query should attend to."""
        pairs = self.targets(window, relation)
        return np.unique(pairs.key[pairs.owner == query])

    def is_readable(self, relation: int, window: int, query: int) -> bool:
        """True if neither the query nor its targets are fragments of characters."""
        strings = self.windows[window].strings
        keys = self.target_keys(relation, window, query).tolist()
        for position in (query, *keys):
            text = strings[position].strip()
            is_fragment = "\ufffd" in text or not text.isprintable()
            if not text or is_fragment:
                return False
        return True


class Queries(NamedTuple):
    """Queries with the attention on their targets."""

    mass: Float[ndarray, " query"]
    window: Int[ndarray, " query"]
    query: Int[ndarray, " query"]


def _masses(
    patterns_of: Callable[[Window], WindowPatterns],
    sample: ExampleText,
    requests: Sequence[ExampleRequest],
    progress: OnProgress,
) -> list[Queries]:
    """For each requested head and relation the mass of every query of the sample."""
    parts: list[list[Queries]] = [[] for _ in requests]
    lengths = [len(window) for window in sample.windows]
    relations = {want.relation for want in requests}
    for number, window in enumerate(sample.windows):
        patterns = patterns_of(window)
        cells: dict[int, _TargetCells] = {}
        for relation in relations:
            pairs = sample.targets(number, relation)
            if len(pairs):
                # queries whose targets have several tokens are summed over them
                owners, term = np.unique(pairs.owner, return_inverse=True)
                cells[relation] = _TargetCells(pairs=pairs, owners=owners, term=term)
        # a head's mass on all targets of a query
        for want, queries in zip(requests, parts, strict=True):
            if want.relation not in cells:
                continue
            of_relation = cells[want.relation]
            pairs = of_relation.pairs
            values = patterns.values(want.layer, want.head, pairs.query, pairs.key)
            queries.append(of_relation.summed(number, values))
        progress(sum(lengths[: number + 1]), sum(lengths))
    # the windows of each request, one after the other; a request may have no query at all
    no_queries = np.empty(0, np.int64)
    joined = []
    for queries in parts:
        mass = np.concatenate([np.empty(0), *(part.mass for part in queries)])
        window_of_query = np.concatenate([no_queries, *(part.window for part in queries)])
        query = np.concatenate([no_queries, *(part.query for part in queries)])
        joined.append(Queries(mass, window_of_query, query))
    return joined


@dataclass(frozen=True, eq=False)
class _TargetCells:
    """Cells of a relation's targets in a window."""

    pairs: Pairs
    owners: Int[ndarray, " query"]
    """The queries, in order."""
    term: Int[ndarray, " cell"]
    """The place among the owners of the query that a cell counts for."""

    def summed(self, window: int, values: Float[ndarray, " cell"]) -> Queries:
        """The queries, each with the sum of its cells' values."""
        return Queries(
            mass=np.bincount(self.term, values),
            window=np.full(len(self.owners), window),
            query=self.owners,
        )


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
    """Histogram of the queries that it was chosen from; see `Example.masses`."""


def choose_queries(
    sample: ExampleText, want: ExampleRequest, queries: Queries, rng: Generator
) -> Iterator[ExampleQuery]:
    """The best query and one of each further tenth, from different windows if possible.

    Natural text goes before sentences made for a relation if the tenth has both, and tokens that
    can be read before fragments of characters.
    """
    # the highest mass first, equal ones in random order
    order = np.lexsort((rng.random(len(queries.mass)), -queries.mass))
    histogram, _ = np.histogram(queries.mass.clip(0, 1), STEPS, (0, 1))
    unused = np.ones(len(order), bool)
    windows: set[int] = set()
    is_text = np.array([window.stimulus == TEXT.name for window in sample.windows])
    for tenth in range(DECILES):
        # the best are few at least, so that one of them can be read; of any other tenth the second
        # half, clear of the tenth before it
        kind, start, end = "best", 0, max(MIN_BEST, len(order) // DECILES)
        if tenth:
            kind = f"decile {tenth + 1}"
            start = len(order) * (2 * tenth + 1) // (2 * DECILES)
            end = max(start + 1, len(order) * (tenth + 1) // DECILES)
        in_tenth = order[start:end]
        free = in_tenth[unused[in_tenth]]
        # of about the same mass, from other windows than those before if possible
        of_text = free[is_text[queries.window[free]]]
        preferred = of_text if len(of_text) else free
        similar = max(8, len(order) // 16)
        nearby = preferred[:similar].tolist()
        elsewhere = [i for i in nearby if queries.window[i] not in windows]
        candidates = (elsewhere or nearby)[:NEARBY]
        if not candidates:
            continue
        # of the candidates the first that can be read, if there is one
        best = candidates[0]
        for i in candidates:
            window, query = int(queries.window[i]), int(queries.query[i])
            if sample.is_readable(want.relation, window, query):
                best = i
                break
        unused[best] = False
        windows.add(int(queries.window[best]))
        yield ExampleQuery(
            layer=want.layer,
            head=want.head,
            relation=want.relation,
            kind=kind,
            mass=float(queries.mass[best]),
            window=int(queries.window[best]),
            query=int(queries.query[best]),
            masses=tuple(histogram.tolist()),
        )


def _example(sample: ExampleText, choice: ExampleQuery, patterns: WindowPatterns) -> Example:
    # of an ordinary text the beginning is shown
    window = sample.windows[choice.window]
    query = choice.query
    relation = ""
    targets = np.empty(0, np.int64)
    left_out: list[float] = []
    positions = np.arange(min(BEGINNING, len(window)))
    # of a query what is near it, its targets and its strongest keys
    if choice.relation is not None:
        relation = sample.relations[choice.relation].id
        targets = sample.target_keys(choice.relation, choice.window, query)
        row_end = int(window.attention_kind.row_end(query, len(window)))
        keys = np.arange(row_end)
        queries = np.full_like(keys, query)
        row = patterns.values(choice.layer, choice.head, queries, keys)
        positions = excerpt(query, targets, row, len(window))
        for _, first, end in stretches_left_out(positions.tolist()):
            left_out.append(float(row[first:end].sum()))
    # attention among the shown tokens
    size = len(positions)
    target_places = np.flatnonzero(np.isin(positions, targets))
    pattern = patterns.values(
        choice.layer,
        choice.head,
        query=np.repeat(positions, size),
        key=np.tile(positions, size),
    )
    return Example(
        layer=choice.layer,
        head=choice.head,
        relation=relation,
        kind=choice.kind,
        mass=choice.mass,
        window=window.name,
        tokens=tuple(window.strings[i] for i in positions),
        query=-1 if query < 0 else int(np.searchsorted(positions, query)),
        targets=tuple(target_places.tolist()),
        pattern=pattern.reshape(size, size).astype(np.float16),
        positions=tuple(positions.tolist()),
        left_out=tuple(left_out),
        length=len(window),
        more_targets=len(targets) - len(target_places),
        masses=choice.masses,
    )
