"""Examples of what a head does: a query from each tenth of its queries by mass, and a text.

What a head does on its best examples rarely matches what it does on all text, so both are shown.
They are cut out of the patterns of a sample of the run's windows, of long ones of their beginning.
Those of text are kept while the run reads them; the others are read again, first for the masses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from headscope.corpus.window import Window
from headscope.measure.example import (
    BEGINNING,
    Example,
    ExampleRequest,
    excerpt,
    stretches_left_out,
)
from headscope.measure.progress import OnProgress
from headscope.measure.query_masses import (
    ExampleQuery,
    Reading,
    choose_queries,
    masses,
    target_keys,
)
from headscope.measure.sample_patterns import SamplePatterns, WindowPatterns
from headscope.models.load import Model
from headscope.relations import all_stimuli
from headscope.relations.query_sampling import LONG
from headscope.relations.relation import Relation
from headscope.stimuli.text import TEXT

QUICK_WINDOWS = 4
"""Windows of text that a quick run reads again, for examples and for the model's loss."""


def find_examples(
    model: Model,
    windows: Sequence[Window],
    relations: Sequence[Relation],
    requests: Sequence[ExampleRequest],
    *,
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
        seed: seeds which of several equal queries are shown.
        progress: called with the tokens read and those to read; the sample, then those of its
            windows that examples are cut out of.
        sample_patterns: patterns of windows that were kept when they were read.
    """
    sample = [window.cut(LONG) for window in windows_to_reread(windows)]
    if not requests or not sample:
        return []
    reading = Reading(model, sample, relations, progress, sample_patterns or SamplePatterns([]))
    rng = np.random.default_rng(seed)
    choices = [
        choice
        for want, queries in zip(requests, masses(reading, requests), strict=True)
        for choice in choose_queries(reading, want, queries, rng)
    ]
    text = next((i for i, window in enumerate(sample) if window.stimulus == TEXT.name), None)
    if text is not None:
        heads = dict.fromkeys((want.layer, want.head) for want in requests)
        choices += [ExampleQuery(*head, None, "ordinary", float("nan"), text, -1) for head in heads]
    return _cut_out(reading, choices)


def windows_to_reread(windows: Sequence[Window]) -> Iterator[Window]:
    """The windows that are read again, taken evenly from those of each stimulus."""
    for row in all_stimuli().values():
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


def _cut_out(reading: Reading, choices: Sequence[ExampleQuery]) -> list[Example]:
    """Examples of the chosen queries, in the order of the heads."""
    by_window: dict[int, list[int]] = {}
    for number, choice in enumerate(choices):
        by_window.setdefault(choice.window, []).append(number)
    examples = {
        number: _example(reading, choices[number], patterns)
        for window, patterns in reading.patterns(sorted(by_window))
        for number in by_window[window]
    }
    order = sorted(examples, key=lambda i: (choices[i].layer, choices[i].head, i))
    return [examples[i] for i in order]


def _example(reading: Reading, choice: ExampleQuery, patterns: WindowPatterns) -> Example:
    window, at = reading.sample[choice.window], choice.query
    relation, targets = "", np.empty(0, np.int64)
    left_out: tuple[float, ...] = ()
    positions = np.arange(min(BEGINNING, len(window)))
    if choice.relation is not None:
        relation = reading.relations[choice.relation].id
        targets = target_keys(reading, choice.relation, choice.window, at)
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
