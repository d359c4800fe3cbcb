"""What a head type is: a relation, that is, a question about which keys a query looks at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.asked import asked
from headscope.relations.pairs import Pairs, balance

FindPairs = Callable[[Window], Pairs]
DrawControl = Callable[[Window, Pairs, np.random.Generator], Pairs]
Control = TypeVar("Control", bound=Callable[..., Pairs])
FindPicks = Callable[[Window], Int[ndarray, " position"]]

MIN_QUERIES = 50
"""Relations with fewer queries are reported but never tagged."""
RELIABLE = 0.5
"""Least agreement of the tags (Cohen's κ) that two halves of the documents give; below it a
relation is marked as unreliable in that run."""


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
    """Least distance of the hit rate above that of any simple rule, at contested queries."""
    broad: bool = False
    """True where it says what kind of key gets the attention and no more: such a tag comes after
    those that say which key."""
    companion: str | None = None
    """A relation whose mass must clear the same floor, where it was measured."""


@dataclass(frozen=True)
class Baseline:
    """The simple rules that a head of a relation must know better than.

    The best of `headscope.relations.simple_rules.RULES` is chosen by the text; queries where
    it is wrong are contested, and a tag is decided there.
    """

    own: FindPicks | None = None
    """A rule of the relation's own beside those: the key at each query, −1 where it has none."""
    without: frozenset[str] = frozenset()
    """Rules that say what the relation says."""
    by_class: bool = True
    """Whether the best is chosen for each class of query words by itself."""
    always_sought: bool = False
    """Whether a text is looked through for contested queries however few it has shown so far."""


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
    """The windows that it reads: `text`, `repeat` (random tokens), `pairs` (related words),
    `facts` (what several people have),
    `words` (random words of several tokens)."""
    baseline: Baseline | None = None
    """The simple rules to beat, where there are any."""
    has_hits: bool = True
    """Whether a hit rate makes sense: not where the target is the first token."""
    matched: DrawControl | None = None
    """A second control, e.g. the same distance from other queries."""

    @property
    def id(self) -> str:
        """The relation's full name, e.g. `syntactic/obj:dep>head`."""
        return f"{self.type}/{self.name}"


@dataclass(frozen=True, eq=False)
class PairSet:
    """What one relation found in one window."""

    targets: Pairs
    controls: Pairs


def find(relation: Relation, window: Window, seed: Sequence[int]) -> PairSet | None:
    """The relation's balanced targets and controls in a window; None when it has none."""
    if window.stimulus not in relation.stimuli:
        return None
    targets = asked(window, targets_of(relation, window))
    if not len(targets):
        return None
    # seeding takes longer than most controls
    rng = np.random.default_rng(seed) if _draws(relation.control) else _UNUSED
    controls = relation.control(window, targets, rng)
    targets, controls = balance(targets, controls)
    return PairSet(targets, controls) if len(targets) else None


def targets_of(relation: Relation, window: Window) -> Pairs:
    """What a relation finds in a window; kept for a while, as its parts ask for the same."""
    try:
        return _found(relation.pairs, window)
    except TypeError:  # a function that cannot be a key
        return relation.pairs(window)


@lru_cache(maxsize=256)
def _found(pairs: FindPairs, window: Window) -> Pairs:
    return pairs(window)


def draws_nothing(control: Control) -> Control:
    """Mark a control that leaves its generator alone."""
    control.draws = False  # type: ignore[attr-defined]
    return control


def _draws(control: DrawControl) -> bool:
    return bool(getattr(getattr(control, "func", control), "draws", True))


_UNUSED = np.random.default_rng(0)
