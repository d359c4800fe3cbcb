"""Examples of what a head does: its best queries, one from each quarter of the rest, and a text.

What a head does on its best examples rarely matches what it does on all text, so both are shown.
A sample of the run's windows is read again for the heads that earned a tag, and only the patterns
that are shown are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pandas as pd
import torch

from headscope.batches import Batch, batches
from headscope.corpus.window import Window
from headscope.engine import stream_patterns
from headscope.example import Example
from headscope.memory import in_memory
from headscope.models import Model
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
class _Wanted:
    relation: int
    layer: int
    head: int


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
) -> list[Example]:
    """Examples for every tagged head, at most three relations each, in the order of the heads.

    Args:
        model: the model of the run.
        windows: windows of the run to choose from.
        relations: the relations of the run.
        evidence: its evidence, tagged.
        batch_tokens: tokens of one forward pass.
        seed: seeds which of several equal queries are shown.
    """
    wanted = list(_wanted(evidence, relations))
    sample = list(_spread(windows))
    if not wanted or not sample:
        return []
    masses = _masses(model, sample, relations, wanted, batch_tokens)
    rng = np.random.default_rng(seed)
    choices = [
        choice
        for want, found in zip(wanted, masses, strict=True)
        for choice in _choose(want, found, sample, rng)
    ]
    text = next((i for i, window in enumerate(sample) if window.stimulus == "text"), None)
    if text is not None:
        heads = dict.fromkeys((want.layer, want.head) for want in wanted)
        choices += [_Choice(*head, None, "ordinary", float("nan"), text, -1) for head in heads]
    return _cut_out(model, sample, relations, choices, batch_tokens)


def _wanted(evidence: pd.DataFrame, relations: Sequence[Relation]) -> Iterator[_Wanted]:
    index = {relation.id: i for i, relation in enumerate(relations)}
    tagged = evidence[evidence["tagged"].astype(bool)]
    tagged = tagged.assign(id=tagged["type"] + "/" + tagged["relation"])
    # resting on the first token needs no example where a head does anything else
    tagged = tagged.assign(order=tagged["lift"] - 2 * (tagged["id"] == SINK))
    for (layer, head), own in tagged.groupby(["layer", "head"], sort=True):
        best = own.sort_values("order", ascending=False, kind="stable").head(TAGS_PER_HEAD)
        rest = best[best["id"] != SINK]
        for name in (rest if len(rest) else best)["id"]:
            yield _Wanted(index[name], layer, head)


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


T = TypeVar("T")
_Take = Callable[[int, torch.Tensor, list[int]], Iterable[tuple[int, T]]]
_Queries = list[tuple[float, int, int]]  # mass, window, query


def _masses(
    model: Model, sample: list[Window], relations: Sequence[Relation], wanted: list[_Wanted],
    batch_tokens: int,
) -> list[_Queries]:  # fmt: skip
    """For each wanted head and relation the mass of every query of the sample."""
    found: list[_Queries] = [[] for _ in wanted]
    targets = {
        (i, want.relation): relations[want.relation].pairs(window)
        for i, window in enumerate(sample)
        for want in wanted
        if window.stimulus in relations[want.relation].stimuli
    }
    by_layer: dict[int, list[int]] = {}
    for number, want in enumerate(wanted):
        by_layer.setdefault(want.layer, []).append(number)

    def take(
        layer: int, pattern: torch.Tensor, members: list[int]
    ) -> Iterator[tuple[int, _Queries]]:
        for number in by_layer.get(layer, ()):
            want = wanted[number]
            for row, window in enumerate(members):
                pairs = targets.get((window, want.relation))
                if pairs is None or not len(pairs):
                    continue
                values = pattern[row, want.head][pairs.query, pairs.key].float().cpu().numpy()
                sums = np.bincount(pairs.owner, weights=values)
                yield number, [(sums[q], window, q) for q in pairs.queries.tolist()]

    for number, queries in _read(model, sample, range(len(sample)), batch_tokens, take):
        found[number] += queries
    return found


def _choose(
    want: _Wanted, queries: _Queries, sample: list[Window], rng: np.random.Generator
) -> Iterator[_Choice]:
    """The best queries, and one of each quarter, from different windows where there are."""
    if not queries:
        return
    tie = rng.random(len(queries))
    order = sorted(range(len(queries)), key=lambda i: (-queries[i][0], tie[i]))
    kinds = ["best"] * BEST + [f"quarter {k}" for k in range(1, 5)]
    # from the middle of each quarter to its end
    starts = [0] * BEST + [len(order) * (2 * k + 1) // 8 for k in range(4)]
    ends = [len(order) // 4 or 1] * BEST + [len(order) * (k + 1) // 4 for k in range(4)]
    used: set[tuple[int, int]] = set()
    windows: set[int] = set()
    for kind, start, end in zip(kinds, starts, ends, strict=True):
        most = start + max(8, len(order) // 16)
        nearby = [queries[i] for i in order[start : max(start + 1, min(end, most))]]
        fresh = [q for q in nearby if (q[1], q[2]) not in used]
        elsewhere = [q for q in fresh if q[1] not in windows]
        for mass, window, query in (elsewhere or fresh)[:1]:
            used.add((window, query))
            windows.add(window)
            yield _Choice(want.layer, want.head, want.relation, kind, mass, window, query)


def _cut_out(
    model: Model, sample: list[Window], relations: Sequence[Relation], choices: list[_Choice],
    batch_tokens: int,
) -> list[Example]:  # fmt: skip
    """Read the chosen windows once more and keep what is shown of their patterns."""
    by_window: dict[int, list[int]] = {}
    for number, choice in enumerate(choices):
        by_window.setdefault(choice.window, []).append(number)

    def take(
        layer: int, pattern: torch.Tensor, members: list[int]
    ) -> Iterator[tuple[int, Example]]:
        for row, window in enumerate(members):
            for number in by_window[window]:
                if choices[number].layer == layer:
                    matrix = pattern[row, choices[number].head]
                    yield number, _example(choices[number], sample, relations, matrix)

    examples = dict(_read(model, sample, sorted(by_window), batch_tokens, take))
    order = sorted(examples, key=lambda i: (choices[i].layer, choices[i].head, i))
    return [examples[i] for i in order]


def _example(
    choice: _Choice, sample: list[Window], relations: Sequence[Relation], matrix: torch.Tensor
) -> Example:
    window = sample[choice.window]
    end = len(window) if choice.query < 0 else min(len(window), choice.query + 1 + AFTER)
    shown = np.array([0, *range(max(1, end - WIDTH + 1), end)])
    if choice.query < 0:
        shown = np.arange(min(WIDTH, len(window)))
    targets: tuple[int, ...] = ()
    name = ""
    if choice.relation is not None:
        pairs = relations[choice.relation].pairs(window)
        keys = pairs.key[pairs.owner == choice.query]
        targets = tuple(np.flatnonzero(np.isin(shown, keys)).tolist())
        name = relations[choice.relation].id
    query = int(np.flatnonzero(shown == choice.query)[0]) if choice.query >= 0 else -1
    return Example(
        layer=choice.layer, head=choice.head, relation=name, kind=choice.kind,
        mass=float(choice.mass), window=window.name,
        tokens=tuple(window.strings[i] for i in shown), query=query, targets=targets,
        pattern=matrix[shown][:, shown].half().cpu().numpy(),
    )  # fmt: skip


def _read(
    model: Model, sample: list[Window], chosen: Sequence[int], batch_tokens: int, take: _Take[T]
) -> Iterator[tuple[int, T]]:
    """Run the chosen windows; what `take` finds in each layer's pattern and the windows' places."""
    windows = [sample[i] for i in chosen]
    place = {id(window): i for i, window in zip(chosen, windows, strict=True)}
    blocks = np.zeros(len(windows), np.int64)

    def read(batch: Batch) -> list[tuple[int, T]]:
        members = [place[id(window)] for window in batch.windows]
        found: list[tuple[int, T]] = []

        def on_layer(layer: int, pattern: torch.Tensor) -> None:
            found.extend(take(layer, pattern, members))

        stream_patterns(model.engine, batch.tokens().to(model.device), on_layer)
        return found

    for batch in batches(windows, blocks, set(), tokens=batch_tokens):
        for found in in_memory(batch, read):
            yield from found
