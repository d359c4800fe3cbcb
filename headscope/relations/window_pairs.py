"""The pairs of one window, each found once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.baselines import picks, query_class
from headscope.relations.pairs import Pairs

if TYPE_CHECKING:
    from headscope.relations.hard_queries import ChosenBaseline, ComparedTargets
    from headscope.relations.relation import PairSet, Relation


KEPT_TOKENS = 60_000
"""Tokens of windows whose pairs are kept at most, some 3 KB a token: those of a default run."""


class KeptPairs:
    """Pairs of windows that are read again soon, found once.

    Pairs of all windows of a run would not fit into memory: those of the first `KEPT_TOKENS` tokens
    are kept, the others are found again.
    """

    def __init__(self) -> None:
        self._pairs: dict[int, WindowPairs] = {}
        self._tokens = 0

    def of(self, window: Window) -> WindowPairs:
        """The pairs of a window, kept if there is room."""
        if id(window) in self._pairs:
            return self._pairs[id(window)]
        pairs = WindowPairs(window)
        if self._tokens + len(window) <= KEPT_TOKENS:
            self._tokens += len(window)
            self._pairs[id(window)] = pairs
        return pairs

    def pop(self, window: Window) -> WindowPairs:
        """The pairs of a window, which are not kept any longer."""
        if id(window) not in self._pairs:
            return WindowPairs(window)
        self._tokens -= len(window)
        return self._pairs.pop(id(window))


class WindowPairs:
    """The targets of relations in a window, what baselines pick there, and hard queries.

    Code that has a window in hand makes this object once, hands it on, and drops it with the
    window; `KeptPairs` keeps some.
    """

    def __init__(self, window: Window) -> None:
        self.given = window
        # a new object: what relations derive from it goes with these pairs
        self.window = replace(window)
        self._targets: dict[str, Pairs] = {}
        self._compared: dict[str, ComparedTargets] = {}
        self._own_picks: dict[str, Int[ndarray, " position"]] = {}

    def targets(self, relation: Relation) -> Pairs:
        """Targets of a relation, or of a part of one; without a test of the window's stimulus."""
        if relation.id not in self._targets:
            self._targets[relation.id] = relation.targets_in(self)
        return self._targets[relation.id]

    def cells(self, relation: Relation, seed: Sequence[int]) -> PairSet | None:
        """A relation's targets and controls; None if it has none in this window."""
        if self.window.stimulus not in relation.stimuli:
            return None
        return relation.cells_in(self, seed)

    def compared(self, relation: Relation, baseline: ChosenBaseline) -> ComparedTargets:
        """Hard and easy queries of a relation with the baseline that was chosen for it."""
        if relation.id not in self._compared:
            self._compared[relation.id] = baseline.compare(relation, self)
        return self._compared[relation.id]

    @cached_property
    def picks(self) -> Int[ndarray, "baseline position"]:
        """The key that each baseline picks at each query; see `baselines.picks`."""
        return picks(self.window)

    @cached_property
    def query_class(self) -> Int[ndarray, " position"]:
        """The class of the word that ends at each position; see `baselines.query_class`."""
        return query_class(self.window)

    def own_picks(self, relation: Relation) -> Int[ndarray, " position"] | None:
        """The key that the relation's own baseline picks at each query; None without one."""
        if relation.baseline is None or relation.baseline.find is None:
            return None
        if relation.id not in self._own_picks:
            self._own_picks[relation.id] = relation.baseline.find(self.window)
        return self._own_picks[relation.id]
