"""The pairs of a window are found once while the window is in hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from weakref import WeakSet

import numpy as np

import headscope as hs
from headscope.corpus.window import Window
from headscope.measure.surrogate_rows import LONGEST, MIN_TOKENS
from headscope.relations import relations_of, window_pairs
from headscope.relations.relation import FindPairs
from headscope.relations.window_pairs import KeptPairs, WindowPairs
from headscope.statistics import conditions

TYPES = ["positional", "lexical", "syntactic", "coreference", "induction"]
KEPT = 300
"""Tokens of windows whose pairs are kept from the choice of baselines to the reading."""


def test_no_pair_is_found_twice_while_a_window_is_in_hand(monkeypatch):
    calls: Counter[tuple[str, int]] = Counter()
    seen: list[Window] = []  # kept, so that no two of them have the same address
    in_hand: WeakSet[WindowPairs] = WeakSet()
    most_tokens = 0

    def traced(window: Window, *, name: str, find: FindPairs) -> hs.Pairs:
        calls[name, id(window)] += 1
        seen.append(window)
        return find(window)

    take_in_hand = WindowPairs.__init__

    def watched(self: WindowPairs, window: Window) -> None:
        nonlocal most_tokens
        place = (window.name, len(window))
        assert place not in {(found.given.name, len(found.given)) for found in in_hand}
        take_in_hand(self, window)
        in_hand.add(self)
        most_tokens = max(most_tokens, sum(len(found.given) for found in in_hand))

    monkeypatch.setattr(WindowPairs, "__init__", watched)
    monkeypatch.setattr(window_pairs, "KEPT_TOKENS", KEPT)
    monkeypatch.setattr(conditions, "LEAST_TOP", 0.0)
    relations = [
        replace(each, pairs=partial(traced, name=each.id, find=each.pairs))
        for each in relations_of(TYPES)
    ]
    # any rate at hard queries and any share of most attention will do, so that some heads are
    # compared with their surrogates
    for i, relation in enumerate(relations):
        if relation.thresholds.beat_baseline_by is not None:
            lenient = replace(relation.thresholds, beat_baseline_by=-1.0)
            relations[i] = replace(relation, thresholds=lenient)
    run = hs.classify("mini", relations=relations, max_tokens=4000, progress=False)
    assert run.evidence["surrogate_mass"].notna().any()
    assert len(run.examples) > 0
    assert set(calls.values()) == {1}
    # pairs of all windows of a long text would not fit into memory
    assert most_tokens <= MIN_TOKENS + LONGEST + KEPT < run.info["provenance"]["tokens"]


def test_pairs_are_kept_until_their_window_is_read_as_long_as_there_is_room(monkeypatch):
    monkeypatch.setattr(window_pairs, "KEPT_TOKENS", 7)
    kept = KeptPairs()
    first, second, third = (
        Window(name, np.arange(length), ("a",) * length)
        for name, length in (("first", 5), ("second", 4), ("third", 4))
    )
    of_first = kept.of(first)
    assert kept.of(first) is of_first
    assert kept.of(second) is not kept.of(second)
    assert kept.pop(first) is of_first
    assert kept.pop(first) is not of_first
    # what was given up leaves room for others
    assert kept.of(third) is kept.of(third)
