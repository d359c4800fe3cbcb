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
from tests.helpers.refusals import judged
from tests.relations import question_heads

DOCUMENTS = 16
Look = Callable[[Window, int], int]


@pytest.fixture(scope="module")
def windows(encoder) -> list[Window]:
    return fact_windows(encoder, max_length=128, seed=3, count=DOCUMENTS)


def candidates(window: Window, kind: str = KIND) -> list[int]:
    return sorted(window.arrows.last[window.arrows.kind == kind].tolist())


def answer(window: Window, query: int) -> int:
    return int(window.arrows.last[window.arrows.right][0])


def nearest(window: Window, query: int) -> int:
    return candidates(window)[-1]


def nearest_of_the_property(window: Window, query: int) -> int:
    return candidates(window, PROPERTY)[-1]


def of_the_person(window: Window) -> list[int]:
    """Both values of the person that is asked for."""
    others = set(candidates(window, HALF_RIGHT)) - set(candidates(window, PROPERTY))
    return sorted([answer(window, 0), *others])


def first_of_the_person(window: Window, query: int) -> int:
    return of_the_person(window)[0]


def second_of_the_person(window: Window, query: int) -> int:
    return of_the_person(window)[1]


def same_token(window: Window, query: int) -> int:
    return question_heads.same_token(window)[0]


def after_same_token(window: Window, query: int) -> int:
    return same_token(window, query) + 1


LAZY = (
    nearest,
    nearest_of_the_property,
    first_of_the_person,
    second_of_the_person,
    same_token,
    after_same_token,
)
HABITS: dict[str, Look] = {habit.__name__: habit for habit in LAZY}


def look(window: Window, place: Look, noise: float = 0.0) -> np.ndarray:
    (query,) = set(window.arrows.query.tolist())
    return question_heads.look(window, lambda each: [place(each, query)], noise)


def scored(windows: list[Window], heads: list[tuple[Look, float]]):
    def patterns(window: Window) -> np.ndarray:
        return np.stack([look(window, *head) for head in heads])[None]

    return judged(hs.score_patterns(patterns, windows, types=["retrieval"]))


def test_each_place_is_asked_for_and_nothing_leads_there_by_the_same_word(windows):
    places, of_person = Counter(), Counter()
    for window in windows:
        (query,) = set(window.arrows.query.tolist())
        assert window.tokens[query] not in window.tokens[:query]
        assert window.tokens[query] not in window.tokens[window.arrows.last]
        places[candidates(window).index(answer(window, query))] += 1
        of_person[of_the_person(window).index(answer(window, query))] += 1
    count = DOCUMENTS * IN_DOCUMENT
    assert sum(places.values()) == count
    assert min(places.values()) >= 0.1 * count
    assert min(of_person.values()) >= 0.4 * count
    assert {len(candidates(window)) for window in windows} == {6}
    assert {len(candidates(window, HALF_RIGHT)) for window in windows} == {4}
    assert {window.document for window in windows} == set(range(DOCUMENTS))


NOISES = (0.0, 0.1, 0.5)


@pytest.fixture(scope="module")
def rows(windows) -> dict[object, Any]:
    """The row of the right head at each noise and of each lazy head, of one call for all."""
    heads = {noise: (answer, noise) for noise in NOISES}
    heads |= {name: (habit, 0.0) for name, habit in HABITS.items()}
    return dict(zip(heads, scored(windows, [*heads.values()]).itertuples(), strict=True))


@pytest.mark.parametrize("noise", NOISES)
def test_a_head_that_finds_what_is_asked_for_is_tagged(rows, noise):
    row = rows[noise]
    assert row.verdict == "tagged"
    assert row.mass == pytest.approx(1 - noise, abs=0.1)
    assert row.control < 0.1


@pytest.mark.parametrize("habit", HABITS)
def test_a_lazy_head_is_refused(rows, habit):
    assert rows[habit].verdict in {"no", "narrowly refused"}
    assert rows[habit].refused_alone
    assert rows[habit].mass <= 0.6


def scored_evenly(windows: list[Window], keys: Callable[[Window], list[int]]):
    """The verdict on a head that divides its attention among some keys."""

    def patterns(window: Window) -> np.ndarray:
        heads = [look(window, lambda window, query, key=key: key) for key in keys(window)]
        return np.mean(heads, axis=0)[None, None]

    return next(
        hs.score_patterns(patterns, windows, types=["retrieval"]).evidence.itertuples(index=False)
    )


def test_who_knows_the_person_or_the_property_alone_is_refused(windows):
    for keys in (of_the_person, lambda window: candidates(window, PROPERTY)):
        row = scored_evenly(windows, keys)
        assert row.lift > 0.1
        assert row.mass <= row.matched + 1e-6
        assert row.verdict == "no"


def test_a_head_for_whatever_could_be_the_answer_gains_nothing(windows):
    row = scored_evenly(windows, candidates)
    assert row.lift == pytest.approx(0, abs=1e-6)
    assert row.verdict == "no"
