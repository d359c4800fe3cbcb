"""What a head type is: a relation, that is, a question about which keys a query looks at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.pairs import Pairs, balance

FindPairs = Callable[[Window], Pairs]
DrawControl = Callable[[Window, Pairs, np.random.Generator], Pairs]
Baseline = Callable[[Window, Pairs], Int[ndarray, " rule"]]

BASELINES = 65
"""Simple rules that a head is compared with: rule d > 0 is "always d tokens back", rule 0 is
"the nearest earlier mention"."""
MIN_QUERIES = 50
"""Relations with fewer queries are reported but never tagged."""
RELIABLE = 0.5
"""Least rank correlation of the heads between two halves of a corpus; below it a relation is
marked as unreliable in that run."""


@dataclass(frozen=True)
class Rule:
    """What a tag asks of a head, beside the conditions that all relations share."""

    floor: float
    """Least mass."""
    source: str
    """Where the floor comes from."""
    meaning: str
    """What the head looks at, for sentences: "it puts 0.8 of its attention on {meaning}"."""
    taggable: bool = True
    """False for relations that are reported only."""
    times_chance: float | None = None
    """Least mass in units of the mass that a uniform head would put there."""
    beat_baseline_by: float | None = None
    """Least distance of the hit rate above the best simple rule."""
    companion: str | None = None
    """A relation whose mass must clear the same floor, where it was measured."""


@dataclass(frozen=True)
class Relation:
    """One row of the table of relations.

    `pairs` finds the target cells of a window and `control` draws the cells that a head with
    a simpler habit would hit just as often. Everything else about scoring is shared.
    """

    type: str
    name: str
    pairs: FindPairs
    control: DrawControl
    rule: Rule
    stimuli: tuple[str, ...] = ("text",)
    """The windows that it reads: `text`, `repeat` (random tokens), `pairs` (related words)."""
    baseline: Baseline | None = None
    """Counts for each simple rule the queries that it gets right."""
    has_hits: bool = True
    """Whether a hit rate makes sense: not where the target is the first token."""

    @property
    def id(self) -> str:
        """The relation's full name, e.g. `syntactic/obj:dep>head`."""
        return f"{self.type}/{self.name}"


@dataclass(frozen=True, eq=False)
class PairSet:
    """What one relation found in one window."""

    targets: Pairs
    controls: Pairs
    baselines: Int[ndarray, " rule"]


def find(relation: Relation, window: Window, seed: Sequence[int]) -> PairSet | None:
    """The relation's balanced targets and controls in a window; None when it has none."""
    if window.stimulus not in relation.stimuli:
        return None
    targets = relation.pairs(window)
    if not len(targets):
        return None
    controls = relation.control(window, targets, np.random.default_rng(seed))
    targets, controls = balance(targets, controls)
    if not len(targets):
        return None
    baselines = np.zeros(BASELINES, np.int64)
    if relation.baseline is not None:
        baselines = relation.baseline(window, targets)
    return PairSet(targets, controls, baselines)


def offset_baseline(window: Window, targets: Pairs) -> Int[ndarray, " rule"]:
    """Queries that "always look d tokens back" gets right, for d from 1 to 64.

    The baseline of Clark et al. 2019 (section 4.2) and Voita et al. 2019 (section 5.2).

    >>> from headscope.relations.pairs import pairs
    >>> targets = pairs(np.array([4, 5, 9]), np.array([3, 4, 2]))
    >>> offset_baseline(Window("w", np.arange(10), ("a",) * 10), targets)[[1, 2, 7]].tolist()
    [2, 0, 1]
    """
    distance = targets.query - targets.key
    inside = distance[(distance > 0) & (distance < BASELINES)]
    return np.bincount(inside, minlength=BASELINES)
