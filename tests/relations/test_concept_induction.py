"""Concept induction: heads that go by words, and those that go by tokens and must not pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.stimuli.words import FEWEST_WORDS, LENGTHS, word_windows
from tests.relations.refusals import judged

DOCUMENTS = 16
Look = Callable[[Window, int], int | list[int]]


@pytest.fixture(scope="module")
def windows(encoder) -> list[Window]:
    return word_windows(encoder, max_length=256, seed=3, count=DOCUMENTS)


def word_of(window: Window, position: int) -> int:
    return int(np.searchsorted(window.words.last, position))


def next_word(window: Window, query: int) -> int:
    """The row of the word that followed the query's word in the first copy."""
    return word_of(window, query) - len(window.words) // 2 + 1


def concept(window: Window, query: int) -> int:
    return int(window.words.last[next_word(window, query)])


def token(window: Window, query: int) -> int:
    return query - window.copy_length + 1


def steps(many: int) -> Look:
    def look(window: Window, query: int) -> int:
        return query - window.copy_length + many

    return look


def whole_word(window: Window, query: int) -> list[int]:
    row = next_word(window, query)
    return list(range(window.words.first[row], window.words.last[row] + 1))


def any_word_end(window: Window, query: int) -> list[int]:
    last = window.words.last
    return last[last < query].tolist()


def ends_near_the_copy(before: int, behind: int) -> Look:
    """The ends of words around the right one, that one among them."""

    def found(window: Window, query: int) -> list[int]:
        row = next_word(window, query)
        last = window.words.last[max(0, row - before) : row + behind + 1]
        return last[last < query].tolist()

    return found


HABITS: dict[str, Look] = {
    "the earlier copy and the end of the next word": ends_near_the_copy(1, 0),
    "the ends of the next two words": ends_near_the_copy(0, 1),
    "word ends near the earlier copy": ends_near_the_copy(2, 2),
    "token induction": token,
    "three tokens on": steps(3),
    "the whole next word": whole_word,
    "any word end": any_word_end,
}


def look(window: Window, found: Look, noise: float = 0.0) -> np.ndarray:
    """A head that looks where a function says, at a share of what it has, and evenly elsewhere."""
    n = len(window)
    a = np.zeros((n, n))
    a[:, 0] = 1
    half = len(window.words) // 2
    for query in window.words.last[half:].tolist():
        keys = np.atleast_1d(found(window, query))
        a[query] = 0
        a[query, : query + 1] = noise / (query + 1)
        a[query, keys] += (1 - noise) / len(keys)
    return a


@pytest.fixture(scope="module")
def rows(windows) -> dict[tuple[str, float], pd.Series]:
    """The row of each head at each noise, of one call for all."""
    heads = {("concept", noise): (concept, noise) for noise in (0.0, 0.1, 0.5)}
    heads |= {(name, 0.0): (habit, 0.0) for name, habit in HABITS.items()}

    def patterns(window: Window) -> np.ndarray:
        return np.stack([look(window, *head) for head in heads.values()])[None]

    found = judged(hs.score_patterns(patterns, windows, types=["concept-induction"]))
    return dict(zip(heads, (row for _, row in found.iterrows()), strict=True))


def test_words_are_of_several_tokens_and_no_token_comes_twice(windows):
    assert len(windows) == DOCUMENTS
    for window in windows:
        n = window.copy_length
        assert len(window) == 2 * n + 1
        assert len(set(window.tokens[1 : n + 1].tolist())) == n
        assert (window.tokens[1 : n + 1] == window.tokens[n + 1 :]).all()
        sizes = window.words.last - window.words.first + 1
        assert set(sizes.tolist()) <= {*LENGTHS}
        assert len(set(sizes.tolist())) > 1
        assert len(window.words) // 2 >= FEWEST_WORDS - 1


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_a_head_that_goes_by_words_is_tagged(rows, noise):
    row = rows["concept", noise]
    assert row["verdict"] == "tagged"
    assert row["mass"] == pytest.approx(1 - noise, abs=0.05)
    assert row["contested_n"] >= 50


@pytest.mark.parametrize("habit", HABITS)
def test_a_lazy_head_is_refused(rows, habit):
    assert rows[habit, 0.0]["verdict"] == "no"
    assert rows[habit, 0.0]["refused_alone"]


def test_a_head_of_both_kinds_is_tagged_and_one_that_goes_by_tokens_mostly_is_not(windows):
    """Real heads do both: what counts is that the end has more than the rest of the word."""

    def share(of_concept: float):
        def patterns(window: Window) -> np.ndarray:
            both = [look(window, concept), look(window, token)]
            return (of_concept * both[0] + (1 - of_concept) * both[1])[None, None]

        return hs.score_patterns(patterns, windows, types=["concept-induction"]).evidence

    assert share(0.7)["verdict"].tolist() == ["tagged"]
    assert share(0.5)["verdict"].tolist() == ["no"]
