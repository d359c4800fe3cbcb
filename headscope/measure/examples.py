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
    sample = ExampleText([window.cut(LONG) for window in chosen_windows(windows)], relations)
    if not requests or not sample.windows:
        return []
    rng = np.random.default_rng(seed)
    masses = _masses(patterns_of, sample, requests, progress)
    choices = [
        choice
        for want, queries in zip(requests, masses, strict=True)
        for choice in choose_queries(sample, want, queries, rng)
    ]
    text = [i for i, window in enumerate(sample.windows) if window.stimulus == TEXT.name]
    heads = dict.fromkeys((want.layer, want.head) for want in requests)
    for head in heads if text else ():
        choices.append(ExampleQuery(*head, None, "ordinary", float("nan"), text[0], -1))
    choices.sort(key=lambda choice: (choice.layer, choice.head))
    examples: dict[int, Example] = {}
    for number, window in enumerate(sample.windows):
        of_window = [i for i, choice in enumerate(choices) if choice.window == number]
        if of_window:
            patterns = patterns_of(window)
            examples |= {i: _example(sample, choices[i], patterns) for i in of_window}
    return [examples[i] for i in range(len(choices))]


def chosen_windows(windows: Sequence[Window]) -> Iterator[Window]:
    """Windows that examples are cut out of, taken evenly from those of each stimulus."""
    for row in all_stimuli().values():
        read = [window for window in windows if window.stimulus == row.name]
        count = min(row.example_windows, len(read))
        for i in np.unique(np.linspace(0, len(read) - 1, count).round()):
            yield read[int(i)]


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
        positions = [query, *self.target_keys(relation, window, query).tolist()]
        texts = [strings[position].strip() for position in positions]
        return all(text and text.isprintable() and "\ufffd" not in text for text in texts)


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
    none = Queries(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
    parts: list[list[Queries]] = [[none] for _ in requests]
    lengths = [len(window) for window in sample.windows]
    relations = {want.relation for want in requests}
    for number, window in enumerate(sample.windows):
        patterns = patterns_of(window)
        targets = {relation: sample.targets(number, relation) for relation in relations}
        terms = {
            relation: np.unique(pairs.owner, return_inverse=True)
            for relation, pairs in targets.items()
            if len(pairs)
        }
        for want, queries in zip(requests, parts, strict=True):
            if want.relation in terms:
                pairs, (owners, term) = targets[want.relation], terms[want.relation]
                values = patterns.values(want.layer, want.head, pairs.query, pairs.key)
                of_window = np.full(len(owners), number)
                queries.append(Queries(np.bincount(term, values), of_window, owners))
        progress(sum(lengths[: number + 1]), sum(lengths))
    return [Queries(*map(np.concatenate, zip(*queries, strict=True))) for queries in parts]


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
    order = np.lexsort((rng.random(len(queries.mass)), -queries.mass))
    natural = np.array([window.stimulus == TEXT.name for window in sample.windows])
    masses = tuple(np.histogram(queries.mass.clip(0, 1), STEPS, (0, 1))[0].tolist())
    unused = np.ones(len(order), bool)
    windows: set[int] = set()
    for kind, start, end in _kinds(len(order)):
        tenth = order[start:end][unused[order[start:end]]]
        of_text = tenth[natural[queries.window[tenth]]]
        nearby = (of_text if len(of_text) else tenth)[: max(8, len(order) // 16)].tolist()
        elsewhere = [i for i in nearby if queries.window[i] not in windows]
        candidates = (elsewhere or nearby)[:NEARBY]
        if not candidates:
            continue
        places = {i: (int(queries.window[i]), int(queries.query[i])) for i in candidates}
        readable = (i for i in candidates if sample.is_readable(want.relation, *places[i]))
        best = next(readable, candidates[0])
        unused[best] = False
        windows.add(places[best][0])
        mass = float(queries.mass[best])
        yield ExampleQuery(want.layer, want.head, want.relation, kind, mass, *places[best], masses)


def _kinds(size: int) -> Iterator[tuple[str, int, int]]:
    """Names and bounds of the tenths of so many queries, the highest first."""
    if not size:
        return
    yield "best", 0, max(MIN_BEST, size // DECILES)
    for k in range(1, DECILES):
        start = size * (2 * k + 1) // (2 * DECILES)  # from the middle of each tenth to its end
        yield f"decile {k + 1}", start, max(start + 1, size * (k + 1) // DECILES)


def _example(sample: ExampleText, choice: ExampleQuery, patterns: WindowPatterns) -> Example:
    window, at = sample.windows[choice.window], choice.query
    relation, targets = "", np.empty(0, np.int64)
    left_out: tuple[float, ...] = ()
    positions = np.arange(min(BEGINNING, len(window)))
    if choice.relation is not None:
        relation = sample.relations[choice.relation].id
        targets = sample.target_keys(choice.relation, choice.window, at)
        keys = np.arange(int(window.attention_kind.row_end(at, len(window))))
        row = patterns.values(choice.layer, choice.head, np.full_like(keys, at), keys)
        positions = excerpt(at, targets, row, len(window))
        gaps = stretches_left_out(positions.tolist())
        left_out = tuple(float(row[first:end].sum()) for _, first, end in gaps)
    size, target_rows = len(positions), np.flatnonzero(np.isin(positions, targets))
    cells = np.repeat(positions, size), np.tile(positions, size)
    pattern = patterns.values(choice.layer, choice.head, *cells)
    return Example(
        layer=choice.layer,
        head=choice.head,
        relation=relation,
        kind=choice.kind,
        mass=choice.mass,
        window=window.name,
        tokens=tuple(window.strings[i] for i in positions),
        query=-1 if at < 0 else int(np.searchsorted(positions, at)),
        targets=tuple(target_rows.tolist()),
        pattern=pattern.reshape(size, size).astype(np.float16),
        positions=tuple(positions.tolist()),
        left_out=left_out,
        length=len(window),
        more_targets=len(targets) - len(target_rows),
        masses=choice.masses,
    )
