"""Retrieval: heads that find what is asked for, and the lazy ones that must not pass for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.models.load import load_model
from headscope.stimuli.facts import IN_DOCUMENT, KIND, fact_windows

DOCUMENTS = 16
Look = Callable[[Window, int], int]


@pytest.fixture(scope="module")
def encoder():
    return load_model("mini").tokenizer


@pytest.fixture(scope="module")
def windows(encoder) -> list[Window]:
    return fact_windows(encoder, max_length=128, seed=3, count=DOCUMENTS)


def candidates(window: Window) -> list[int]:
    return sorted(window.arrows.last.tolist())


def answer(window: Window, query: int) -> int:
    return int(window.arrows.last[window.arrows.right][0])


def nearest(window: Window, query: int) -> int:
    return candidates(window)[-1]


def first(window: Window, query: int) -> int:
    return candidates(window)[0]


def middle(window: Window, query: int) -> int:
    return candidates(window)[1]


def previous(window: Window, query: int) -> int:
    return query - 1


def same_token(window: Window, query: int) -> int:
    """The last earlier token that is the same, or else that of the token before, and so on."""
    for back in range(query):
        earlier = np.flatnonzero(window.tokens[: query - back] == window.tokens[query - back])
        if len(earlier):
            return int(earlier[-1])
    return 0


def after_same_token(window: Window, query: int) -> int:
    return same_token(window, query) + 1


def asked_name(window: Window, query: int) -> int:
    """Where the one that is asked for is named first: the subject, and not what is said of it."""
    words = window.words
    names = words.lemma[words.upos == "PROPN"].tolist()
    place = words.lemma.tolist().index(names[-1])
    return int(words.last[place])


HABITS: dict[str, Look] = {
    each.__name__: each
    for each in (nearest, first, middle, previous, same_token, after_same_token, asked_name)
}


def look(window: Window, found: Look, noise: float = 0.0) -> np.ndarray:
    """A head that looks where a function says, at a share of what it has, and evenly elsewhere."""
    n = len(window)
    a = np.zeros((n, n))
    a[:, 0] = 1
    for query in set(window.arrows.query.tolist()):
        a[query] = 0
        a[query, : query + 1] = noise / (query + 1)
        a[query, found(window, query)] += 1 - noise
    return a


def scored(windows: list[Window], heads: list[tuple[Look, float]]):
    def patterns(window: Window) -> np.ndarray:
        return np.stack([look(window, *head) for head in heads])[None]

    return hs.score_patterns(patterns, windows, types=["retrieval"]).evidence


def test_each_place_is_asked_for_and_nothing_leads_there_by_the_same_word(windows):
    places = Counter()
    for window in windows:
        (query,) = set(window.arrows.query.tolist())
        assert window.tokens[query] not in window.tokens[:query]
        assert window.tokens[query] not in window.tokens[window.arrows.last]
        places[candidates(window).index(answer(window, query))] += 1
    assert sum(places.values()) == DOCUMENTS * IN_DOCUMENT
    assert min(places.values()) >= 0.3 * DOCUMENTS * IN_DOCUMENT
    assert {kind for window in windows for kind in window.arrows.kind} == {KIND}
    assert {window.document for window in windows} == set(range(DOCUMENTS))


def test_the_first_round_of_reading_is_short_and_decides(windows):
    """What it adds to the default run, and that 16 documents are enough for a tag."""
    assert sum(map(len, windows)) < 60 * DOCUMENTS * IN_DOCUMENT
    found = scored(windows, [(answer, 0.0)])
    assert found["contested_n"].iloc[0] >= 50


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_a_head_that_finds_what_is_asked_for_is_tagged(windows, noise):
    (row,) = scored(windows, [(answer, noise)]).itertuples()
    assert row.verdict == "tagged"
    assert row.mass == pytest.approx(1 - noise, abs=0.1)
    assert row.control < 0.1


@pytest.mark.parametrize("habit", HABITS)
def test_a_lazy_head_is_refused(windows, habit):
    (row,) = scored(windows, [(HABITS[habit], 0.0)]).itertuples()
    assert row.verdict in {"no", "narrowly refused"}
    assert row.mass <= 0.4


def test_a_head_for_whatever_could_be_the_answer_gains_nothing(windows):
    def patterns(window: Window) -> np.ndarray:
        heads = [look(window, each) for each in (first, middle, nearest)]
        return np.mean(heads, axis=0)[None, None]

    (row,) = hs.score_patterns(patterns, windows, types=["retrieval"]).evidence.itertuples()
    assert row.lift == pytest.approx(0, abs=1e-6)
    assert row.verdict == "no"


def test_texts_that_are_longer_than_a_window_are_left_out(encoder):
    assert fact_windows(encoder, max_length=12, seed=3, count=2) == []
