"""Examples of what a head does: a query from each tenth of its queries by mass, and a text.

What a head does on its best examples rarely matches what it does on all text, so both are shown.
A sample of the run's windows is read again for the heads that are asked for. Their patterns are
kept meanwhile; where that needs too much memory it is read twice, first for the masses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.chosen import Chosen, choose, targets_of
from headscope.measure.example import Example, Wanted
from headscope.measure.excerpt import BEGINNING, excerpt, stretches_left_out
from headscope.measure.gather import Cells
from headscope.measure.kept import Kept
from headscope.measure.query_masses import Progress, Reading, masses
from headscope.models.load import Model
from headscope.relations.relation import Relation

SAMPLE = {"text": 16, "repeat": 2, "pairs": 4, "facts": 8, "words": 4}
"""Windows of each stimulus that are read again."""


def find_examples(
    model: Model,
    windows: Sequence[Window],
    relations: Sequence[Relation],
    wanted: Sequence[Wanted],
    *,
    batch_tokens: int,
    seed: int,
    progress: Progress = lambda done, total: None,
) -> list[Example]:
    """Examples of the heads that are asked for, in the order of the heads.

    Args:
        model: the model of the run.
        windows: windows of the run to choose from.
        relations: the relations of the run.
        wanted: the heads, each with a relation; see `evidence.ranking.wanted_examples`.
        batch_tokens: tokens of one forward pass.
        seed: seeds which of several equal queries are shown.
        progress: called with the tokens read and those to read; the sample, then those of its
            windows that examples are cut out of.
    """
    sample = list(spread(windows))
    if not wanted or not sample:
        return []
    reading = Reading(model, sample, relations, batch_tokens, progress)
    kept = Kept(sample, ((want.layer, want.head) for want in wanted), model.heads)
    rng = np.random.default_rng(seed)
    found_masses = masses(reading, wanted, kept if kept.fits else None)
    choices = [
        choice
        for want, found in zip(wanted, found_masses, strict=True)
        for choice in choose(reading, want, found, rng)
    ]
    text = next((i for i, window in enumerate(sample) if window.stimulus == "text"), None)
    if text is not None:
        heads = dict.fromkeys((want.layer, want.head) for want in wanted)
        choices += [Chosen(*head, None, "ordinary", float("nan"), text, -1) for head in heads]
    return _cut_out(reading, choices, kept if kept.fits else reading)


def spread(windows: Sequence[Window]) -> Iterator[Window]:
    """The windows that are read again, taken evenly from those of each stimulus."""
    for stimulus, count in SAMPLE.items():
        own = [window for window in windows if window.stimulus == stimulus]
        for i in np.unique(np.linspace(0, len(own) - 1, min(count, len(own))).round()):
            yield own[int(i)]


class Sample:
    """Keeps a few windows of a stream, each with the same chance (Vitter 1985, algorithm R)."""

    def __init__(self, *, seed: int) -> None:
        self.windows: list[Window] = []
        self._rng = np.random.default_rng(seed)

    def watch(self, windows: Iterable[Window]) -> Iterator[Window]:
        """The same windows; those that are kept change as they pass."""
        for i, window in enumerate(windows):
            if i < SAMPLE["text"]:
                self.windows.append(window)
            elif (place := int(self._rng.integers(i + 1))) < SAMPLE["text"]:
                self.windows[place] = window
            yield window


def _cut_out(reading: Reading, choices: list[Chosen], source: Kept | Reading) -> list[Example]:
    """From the chosen windows the queries' rows, and what these say is to be shown."""
    by_window: dict[int, list[int]] = {}
    for number, choice in enumerate(choices):
        by_window.setdefault(choice.window, []).append(number)
    shown: dict[int, ndarray] = {}
    heads = reading.model.heads

    def ask(members: Sequence[int], length: int) -> Iterator[Cells[int]]:
        for row, window in enumerate(members):
            for number in by_window[window]:
                first = row * heads * length
                yield from _cells(reading, choices[number], number, first, length, shown)

    found: dict[int, list[ndarray]] = {}
    for number, values in source.read(sorted(by_window), ask):
        found.setdefault(number, []).append(values)
    order = sorted(found, key=lambda i: (choices[i].layer, choices[i].head, i))
    return [_example(reading, choices[i], shown[i], *found[i]) for i in order]


def _cells(
    reading: Reading,
    choice: Chosen,
    number: int,
    first: int,
    length: int,
    shown: dict[int, ndarray],
) -> Iterator[Cells[int]]:
    """The row of the chosen query and then what is shown; at once where there is no query.

    Args:
        reading: where it is read.
        choice: what was chosen.
        number: its number.
        first: the flat place of the window's first row, in rows of `length` keys.
        length: of the batch.
        shown: by number, the positions that are shown; this one's are added when they are known.
    """

    def square(row: ndarray | None) -> ndarray:
        places = shown[number] = _shown(reading, choice, row)
        return np.asarray(((first + places[:, None]) * length + places).ravel())

    if choice.query < 0:
        yield Cells(choice.layer, choice.head, square(None), number)
    else:
        window = reading.sample[choice.window]
        seen = len(window) if window.both_ways else choice.query + 1
        row = (first + choice.query) * length + np.arange(seen)
        yield Cells(choice.layer, choice.head, row, number, square)


def _shown(reading: Reading, choice: Chosen, row: ndarray | None) -> Int[ndarray, " shown"]:
    """The positions of the window that are shown."""
    length = len(reading.sample[choice.window])
    if row is None:
        return np.arange(min(BEGINNING, length))
    return excerpt(choice.query, _targets(reading, choice), row, length)


def _targets(reading: Reading, choice: Chosen) -> Int[ndarray, " target"]:
    if choice.relation is None:
        return np.empty(0, np.int64)
    return targets_of(reading, choice.relation, choice.window, choice.query)


def _example(reading: Reading, choice: Chosen, shown: ndarray, *found: ndarray) -> Example:
    """Of a row and a square of attention, or of the square alone."""
    row, values = found[0] if choice.query >= 0 else None, found[-1]
    window, targets = reading.sample[choice.window], _targets(reading, choice)
    places = np.flatnonzero(np.isin(shown, targets))
    relation = "" if choice.relation is None else reading.relations[choice.relation].id
    left_out: tuple[float, ...] = ()
    if row is not None:
        gaps = stretches_left_out(shown.tolist())
        left_out = tuple(float(row[first:end].sum()) for _, first, end in gaps)
    return Example(
        layer=choice.layer,
        head=choice.head,
        relation=relation,
        kind=choice.kind,
        mass=choice.mass,
        window=window.name,
        tokens=tuple(window.strings[i] for i in shown),
        query=-1 if row is None else int(np.searchsorted(shown, choice.query)),
        targets=tuple(places.tolist()),
        pattern=values.reshape(len(shown), len(shown)).astype(np.float16),
        positions=tuple(shown.tolist()),
        left_out=left_out,
        length=len(window),
        more_targets=len(targets) - len(places),
        masses=choice.masses,
    )
