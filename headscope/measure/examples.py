"""Examples of what a head does: a query from each tenth of its queries by mass, and a text.

What a head does on its best examples rarely matches what it does on all text, so both are shown.
They are cut out of the patterns of a sample of the run's windows. Those of text are kept while the
run reads them, the others are read again; where all need too much memory the sample is read twice,
first for the masses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.example import (
    BEGINNING,
    Example,
    ExampleRequest,
    excerpt,
    stretches_left_out,
)
from headscope.measure.gather import Cells, PatternBuffer, SamplePatterns
from headscope.measure.progress import OnProgress
from headscope.measure.query_masses import (
    ExampleQuery,
    Reading,
    choose_queries,
    masses,
    target_keys,
)
from headscope.models.load import Model
from headscope.relations.relation import Relation
from headscope.stimuli import STIMULI
from headscope.stimuli.text import TEXT

QUICK_WINDOWS = 4
"""Windows of text that a quick run reads again, for examples and for the model's loss."""


def find_examples(
    model: Model,
    windows: Sequence[Window],
    relations: Sequence[Relation],
    requests: Sequence[ExampleRequest],
    *,
    batch_tokens: int,
    seed: int,
    progress: OnProgress = lambda done, total: None,
    sample_patterns: SamplePatterns | None = None,
) -> list[Example]:
    """Examples of the heads that are asked for, in the order of the heads.

    Args:
        model: the model of the run.
        windows: windows of the run to choose from.
        relations: the relations of the run.
        requests: the heads, each with a relation; see `evidence.ranking.wanted_examples`.
        batch_tokens: tokens of one forward pass.
        seed: seeds which of several equal queries are shown.
        progress: called with the tokens read and those to read; the sample, then those of its
            windows that examples are cut out of.
        sample_patterns: patterns of windows that were kept when they were read.
    """
    sample = list(windows_to_reread(windows))
    if not requests or not sample:
        return []
    reading = Reading(model, sample, relations, batch_tokens, progress)
    buffer = PatternBuffer(sample, ((want.layer, want.head) for want in requests), model.heads)
    rng = np.random.default_rng(seed)
    source: PatternBuffer | Reading = reading
    if buffer.fits:
        reading.fill(buffer, sample_patterns)
        source = buffer
    found_masses = masses(reading, requests, source)
    choices = [
        choice
        for want, queries in zip(requests, found_masses, strict=True)
        for choice in choose_queries(reading, want, queries, rng)
    ]
    text = next((i for i, window in enumerate(sample) if window.stimulus == TEXT.name), None)
    if text is not None:
        heads = dict.fromkeys((want.layer, want.head) for want in requests)
        choices += [ExampleQuery(*head, None, "ordinary", float("nan"), text, -1) for head in heads]
    return _cut_out(reading, choices, source)


def windows_to_reread(windows: Sequence[Window]) -> Iterator[Window]:
    """The windows that are read again, taken evenly from those of each stimulus."""
    for row in STIMULI.values():
        read = [window for window in windows if window.stimulus == row.name]
        count = min(row.example_windows, len(read))
        for i in np.unique(np.linspace(0, len(read) - 1, count).round()):
            yield read[int(i)]


class Sample:
    """Keeps a few windows of a stream, each with the same chance (Vitter 1985, algorithm R)."""

    def __init__(self, size: int = TEXT.example_windows, *, seed: int) -> None:
        self.windows: list[Window] = []
        self._size = size
        self._rng = np.random.default_rng(seed)

    def watch(self, windows: Iterable[Window]) -> Iterator[Window]:
        """The same windows; those that are kept change as they pass."""
        for i, window in enumerate(windows):
            if i < self._size:
                self.windows.append(window)
            elif (slot := int(self._rng.integers(i + 1))) < self._size:
                self.windows[slot] = window
            yield window


def _cut_out(
    reading: Reading, choices: list[ExampleQuery], source: PatternBuffer | Reading
) -> list[Example]:
    """From the chosen windows the queries' rows, and what these say is to be shown."""
    by_window: dict[int, list[int]] = {}
    for number, choice in enumerate(choices):
        by_window.setdefault(choice.window, []).append(number)
    positions: dict[int, ndarray] = {}
    heads = reading.model.heads

    def cells_of(members: Sequence[int], length: int) -> Iterator[Cells[int]]:
        for row, window in enumerate(members):
            for number in by_window[window]:
                first = row * heads * length
                yield from _cells(reading, choices[number], number, first, length, positions)

    values_by_choice: dict[int, list[ndarray]] = {}
    for number, values in source.read(sorted(by_window), cells_of):
        values_by_choice.setdefault(number, []).append(values)
    order = sorted(values_by_choice, key=lambda i: (choices[i].layer, choices[i].head, i))
    return [_example(reading, choices[i], positions[i], *values_by_choice[i]) for i in order]


def _cells(
    reading: Reading,
    choice: ExampleQuery,
    number: int,
    first: int,
    length: int,
    positions: dict[int, ndarray],
) -> Iterator[Cells[int]]:
    """The row of the chosen query and then what is shown; at once where there is no query."""

    def square(row: ndarray | None) -> ndarray:
        shown_positions = positions[number] = _excerpt_positions(reading, choice, row)
        return np.asarray(((first + shown_positions[:, None]) * length + shown_positions).ravel())

    if choice.query < 0:
        yield Cells(choice.layer, choice.head, square(None), number)
    else:
        window = reading.sample[choice.window]
        row_end = int(window.attention_kind.row_end(choice.query, len(window)))
        row = (first + choice.query) * length + np.arange(row_end)
        yield Cells(choice.layer, choice.head, row, number, square)


def _excerpt_positions(
    reading: Reading, choice: ExampleQuery, row: ndarray | None
) -> Int[ndarray, " shown"]:
    length = len(reading.sample[choice.window])
    if row is None:
        return np.arange(min(BEGINNING, length))
    return excerpt(choice.query, _targets(reading, choice), row, length)


def _targets(reading: Reading, choice: ExampleQuery) -> Int[ndarray, " target"]:
    if choice.relation is None:
        return np.empty(0, np.int64)
    return target_keys(reading, choice.relation, choice.window, choice.query)


def _example(
    reading: Reading, choice: ExampleQuery, positions: ndarray, *values_read: ndarray
) -> Example:
    row, values = values_read[0] if choice.query >= 0 else None, values_read[-1]
    window, targets = reading.sample[choice.window], _targets(reading, choice)
    target_rows = np.flatnonzero(np.isin(positions, targets))
    relation = "" if choice.relation is None else reading.relations[choice.relation].id
    left_out: tuple[float, ...] = ()
    if row is not None:
        gaps = stretches_left_out(positions.tolist())
        left_out = tuple(float(row[first:end].sum()) for _, first, end in gaps)
    return Example(
        layer=choice.layer,
        head=choice.head,
        relation=relation,
        kind=choice.kind,
        mass=choice.mass,
        window=window.name,
        tokens=tuple(window.strings[i] for i in positions),
        query=-1 if row is None else int(np.searchsorted(positions, choice.query)),
        targets=tuple(target_rows.tolist()),
        pattern=values.reshape(len(positions), len(positions)).astype(np.float16),
        positions=tuple(positions.tolist()),
        left_out=left_out,
        length=len(window),
        more_targets=len(targets) - len(target_rows),
        masses=choice.masses,
    )
