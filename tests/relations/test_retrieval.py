"""Retrieval: heads that find what is asked for, and the lazy ones that must not pass for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.stimuli.facts import HALF_RIGHT, IN_DOCUMENT, KIND, PROPERTY, fact_windows
from tests.relations.refusals import judged

DOCUMENTS = 16
Look = Callable[[Window], list[int]]
"""The keys that a head looks at from the question's last token."""


@pytest.fixture(scope="module")
def windows(encoder) -> list[Window]:
    return fact_windows(encoder, max_length=128, seed=3, count=DOCUMENTS)


def query_of(window: Window) -> int:
    (query,) = set(window.arrows.query.tolist())
    return query


def candidates(window: Window, kind: str = KIND) -> list[int]:
    return sorted(window.arrows.last[window.arrows.kind == kind].tolist())


def answer(window: Window) -> list[int]:
    return [int(window.arrows.last[window.arrows.right][0])]


def of_the_person(window: Window) -> list[int]:
    """Both values of the person that is asked for."""
    others = set(candidates(window, HALF_RIGHT)) - set(candidates(window, PROPERTY))
    return sorted([*answer(window), *others])


def same_token(window: Window) -> list[int]:
    """The last earlier token that is the same, or else that of the token before, and so on."""
    query = query_of(window)
    for back in range(query):
        earlier = np.flatnonzero(window.tokens[: query - back] == window.tokens[query - back])
        if len(earlier):
            return [int(earlier[-1])]
    return [0]


HABITS: dict[str, Look] = {
    "nearest": lambda window: candidates(window)[-1:],
    "nearest of the property": lambda window: candidates(window, PROPERTY)[-1:],
    "the property": lambda window: candidates(window, PROPERTY),
    "first of the person": lambda window: of_the_person(window)[:1],
    "second of the person": lambda window: of_the_person(window)[1:],
    "the person": of_the_person,
    "whatever could be the answer": candidates,
    "same token": same_token,
    "after the same token": lambda window: [same_token(window)[0] + 1],
}
NOISES = (0.0, 0.1, 0.5)


def pattern(window: Window, look: Look, noise: float) -> np.ndarray:
    """A head that looks where a function says, at a share of what it has, and evenly elsewhere."""
    a = np.zeros((len(window), len(window)))
    a[:, 0] = 1
    query, keys = query_of(window), look(window)
    a[query] = 0
    a[query, : query + 1] = noise / (query + 1)
    a[query, keys] += (1 - noise) / len(keys)
    return a


@pytest.fixture(scope="module")
def rows(windows) -> dict[object, Any]:
    """The row of the right head at each noise and of each lazy head, of one call for all."""
    heads: dict[object, tuple[Look, float]] = {noise: (answer, noise) for noise in NOISES}
    heads |= {name: (habit, 0.0) for name, habit in HABITS.items()}

    def patterns(window: Window) -> np.ndarray:
        return np.stack([pattern(window, *head) for head in heads.values()])[None]

    evidence = judged(hs.score_patterns(patterns, windows, types=["retrieval"]))
    return dict(zip(heads, evidence.itertuples(), strict=True))


def test_each_position_is_asked_for_and_nothing_leads_there_by_the_same_word(windows):
    positions, of_person = Counter(), Counter()
    for window in windows:
        query = query_of(window)
        assert window.tokens[query] not in window.tokens[:query]
        assert window.tokens[query] not in window.tokens[window.arrows.last]
        positions[candidates(window).index(*answer(window))] += 1
        of_person[of_the_person(window).index(*answer(window))] += 1
    count = DOCUMENTS * IN_DOCUMENT
    assert sum(positions.values()) == count
    assert min(positions.values()) >= 0.1 * count
    assert min(of_person.values()) >= 0.4 * count
    assert {len(candidates(window)) for window in windows} == {6}
    assert {len(candidates(window, HALF_RIGHT)) for window in windows} == {4}
    assert {window.document for window in windows} == set(range(DOCUMENTS))


@pytest.mark.parametrize("noise", NOISES)
def test_a_head_that_finds_what_is_asked_for_is_tagged(rows, noise):
    row = rows[noise]
    assert row.verdict == "tagged"
    assert row.mass == pytest.approx(1 - noise, abs=0.1)
    assert row.control < 0.1


@pytest.mark.parametrize("habit", HABITS)
def test_a_lazy_head_is_refused(rows, habit):
    row = rows[habit]
    assert row.verdict in {"no", "narrowly refused"}
    assert row.refused_alone
    assert row.mass <= 0.6
    if habit in ("the person", "the property"):
        assert row.lift > 0.1
        assert row.mass <= row.matched + 1e-6
