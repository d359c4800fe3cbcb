"""Examples of what a head does: its best queries, one from each quarter of the rest, and a text.

What a head does on its best examples rarely matches what it does on all text, so both are shown.
A sample of the run's windows is read again for the heads that earned a tag, and only the patterns
that are shown are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int
from numpy import ndarray

from headscope.cells import Cells
from headscope.corpus.window import Window
from headscope.example import Example
from headscope.models import Model
from headscope.query_masses import Progress, Queries, Reading, Wanted, masses
from headscope.relations.relation import Relation
from headscope.tags import SINK

SAMPLE = {"text": 16, "repeat": 2, "pairs": 4}
"""Windows of each stimulus that are read again."""
TAGS_PER_HEAD = 3
BEST = 2
WIDTH = 40
"""Tokens that an example shows at most, the first token and the text around the query."""
AFTER = 2  # tokens shown after the query


@dataclass(frozen=True)
class _Choice:
    layer: int
    head: int
    relation: int | None
    kind: str
    mass: float
    window: int
    query: int


def find_examples(
    model: Model,
    windows: Sequence[Window],
    relations: Sequence[Relation],
    evidence: pd.DataFrame,
    *,
    batch_tokens: int,
    seed: int,
    progress: Progress = lambda done, total: None,
) -> list[Example]:
    """Examples for every tagged head, at most three relations each, in the order of the heads.

    Args:
        model: the model of the run.
        windows: windows of the run to choose from.
        relations: the relations of the run.
        evidence: its evidence, tagged.
        batch_tokens: tokens of one forward pass.
        seed: seeds which of several equal queries are shown.
        progress: called with the tokens read and those to read; the sample is read twice.
    """
    wanted = list(_wanted(evidence, relations))
    sample = list(_spread(windows))
    if not wanted or not sample:
        return []
    reading = Reading(model, sample, relations, batch_tokens, progress)
    rng = np.random.default_rng(seed)
    choices = [
        choice
        for want, found in zip(wanted, masses(reading, wanted), strict=True)
        for choice in _choose(want, found, rng)
    ]
    text = next((i for i, window in enumerate(sample) if window.stimulus == "text"), None)
    if text is not None:
        heads = dict.fromkeys((want.layer, want.head) for want in wanted)
        choices += [_Choice(*head, None, "ordinary", float("nan"), text, -1) for head in heads]
    return _cut_out(reading, choices)


def _wanted(evidence: pd.DataFrame, relations: Sequence[Relation]) -> Iterator[Wanted]:
    index = {relation.id: i for i, relation in enumerate(relations)}
    tagged = evidence[evidence["tagged"].astype(bool)]
    tagged = tagged.assign(id=tagged["type"] + "/" + tagged["relation"])
    # resting on the first token needs no example where a head does anything else
    tagged = tagged.assign(order=tagged["lift"] - 2 * (tagged["id"] == SINK))
    for (layer, head), own in tagged.groupby(["layer", "head"], sort=True):
        best = own.sort_values("order", ascending=False, kind="stable").head(TAGS_PER_HEAD)
        rest = best[best["id"] != SINK]
        for name in (rest if len(rest) else best)["id"]:
            yield Wanted(index[name], layer, head)


def _spread(windows: Sequence[Window]) -> Iterator[Window]:
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


def _choose(want: Wanted, queries: Queries, rng: np.random.Generator) -> Iterator[_Choice]:
    """The best queries, and one of each quarter, from different windows where there are."""
    order = np.lexsort((rng.random(len(queries.mass)), -queries.mass))
    if not len(order):
        return
    kinds = ["best"] * BEST + [f"quarter {k}" for k in range(1, 5)]
    # from the middle of each quarter to its end
    starts = [0] * BEST + [len(order) * (2 * k + 1) // 8 for k in range(4)]
    ends = [len(order) // 4 or 1] * BEST + [len(order) * (k + 1) // 4 for k in range(4)]
    used: set[int] = set()
    windows: set[int] = set()
    for kind, start, end in zip(kinds, starts, ends, strict=True):
        most = start + max(8, len(order) // 16)
        nearby = order[start : max(start + 1, min(end, most))].tolist()
        fresh = [i for i in nearby if i not in used]
        elsewhere = [i for i in fresh if queries.window[i] not in windows]
        for i in (elsewhere or fresh)[:1]:
            mass, window, query = (
                float(queries.mass[i]),
                *map(int, (queries.window[i], queries.query[i])),
            )
            used.add(i)
            windows.add(window)
            yield _Choice(want.layer, want.head, want.relation, kind, mass, window, query)


def _cut_out(reading: Reading, choices: list[_Choice]) -> list[Example]:
    """Read the chosen windows once more and keep what is shown of their patterns."""
    by_window: dict[int, list[int]] = {}
    for number, choice in enumerate(choices):
        by_window.setdefault(choice.window, []).append(number)
    heads = reading.model.heads

    def ask(members: Sequence[int], length: int) -> Iterator[Cells[int]]:
        for row, window in enumerate(members):
            for number in by_window[window]:
                choice = choices[number]
                shown = _shown(choice, len(reading.sample[window]))
                first = (row * heads + choice.head) * length
                flat = (first + shown[:, None]) * length + shown
                yield Cells(choice.layer, flat.ravel(), number)

    found = dict(reading.read(sorted(by_window), ask))
    order = sorted(found, key=lambda i: (choices[i].layer, choices[i].head, i))
    return [_example(reading, choices[i], found[i]) for i in order]


def _shown(choice: _Choice, length: int) -> Int[ndarray, " token"]:
    """The positions of the window that are shown."""
    if choice.query < 0:
        return np.arange(min(WIDTH, length))
    end = min(length, choice.query + 1 + AFTER)
    return np.array([0, *range(max(1, end - WIDTH + 1), end)])


def _example(reading: Reading, choice: _Choice, values: ndarray) -> Example:
    window = reading.sample[choice.window]
    shown = _shown(choice, len(window))
    targets: tuple[int, ...] = ()
    name = ""
    if choice.relation is not None:
        pairs = reading.targets(choice.window, choice.relation)
        keys = pairs.key[pairs.owner == choice.query]
        targets = tuple(np.flatnonzero(np.isin(shown, keys)).tolist())
        name = reading.relations[choice.relation].id
    query = int(np.flatnonzero(shown == choice.query)[0]) if choice.query >= 0 else -1
    return Example(
        layer=choice.layer, head=choice.head, relation=name, kind=choice.kind,
        mass=choice.mass, window=window.name,
        tokens=tuple(window.strings[i] for i in shown), query=query, targets=targets,
        pattern=values.reshape(len(shown), len(shown)).astype(np.float16),
    )  # fmt: skip
