"""Binding: heads that find what belongs to the one asked for, and the lazy ones to be refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.stimuli.containers import HELD, container_windows
from tests.helpers.refusals import judged
from tests.relations.question_heads import Look, after_same_token, look, same_token

DOCUMENTS = 16


@pytest.fixture(scope="module")
def windows(encoder) -> list[Window]:
    return container_windows(encoder, max_length=128, seed=3, count=DOCUMENTS)


def contents(window: Window) -> list[int]:
    """Last tokens of what is held, from the first to the last."""
    return sorted(window.arrows.last[window.arrows.kind == HELD].tolist())


def right(window: Window) -> list[int]:
    return [int(window.arrows.last[window.arrows.right][0])]


def names(window: Window) -> list[tuple[str, str, int, int]]:
    """Colour, kind, row of the colour, and sentence of each container that is named."""
    words = window.words
    rows = [row for row in range(len(words) - 1) if words.upos[row] == "ADJ"]
    return [(words.lemma[row], words.lemma[row + 1], row, int(words.sentence[row])) for row in rows]


def held_by(window: Window) -> dict[tuple[str, str], int]:
    """The content of each container, read from the stated sentences: the first and the second."""
    words, pairs = window.words, {}
    *stated, _ = names(window)
    for sentence in {name[3] for name in stated}:
        inside = [key for key in contents(window) if _sentence(window, key) == sentence]
        of_sentence = [name[:2] for name in stated if name[3] == sentence]
        # every template names both containers in the order of what they hold
        pairs |= dict(zip(of_sentence, inside, strict=True))
    assert len(pairs) == 4, words.lemma
    return pairs


def _sentence(window: Window, key: int) -> int:
    words = window.words
    return int(words.sentence[words.last.tolist().index(key)])


def asked(window: Window) -> tuple[str, str, int, int]:
    """The container that is asked for, where it is named first."""
    *stated, question = names(window)
    return next(name for name in stated if name[:2] == question[:2])


def numbered(place: int) -> Look:
    return lambda window: [contents(window)[place]]


def by_colour(window: Window) -> list[int]:
    return [key for name, key in held_by(window).items() if name[0] == asked(window)[0]]


def by_kind(window: Window) -> list[int]:
    return [key for name, key in held_by(window).items() if name[1] == asked(window)[1]]


def by_sentence(window: Window) -> list[int]:
    return [key for key in contents(window) if _sentence(window, key) == asked(window)[3]]


def by_either_word(window: Window) -> list[int]:
    """The right one twice, and each that shares a word once: colour and kind added up."""
    return [*by_colour(window), *by_kind(window)]


def nearest_to_the_name(window: Window) -> list[int]:
    words, row = window.words, asked(window)[2]
    first, last = int(words.first[row]), int(words.last[row + 1])
    gaps = {key: max(first - key, key - last) for key in contents(window)}
    return [min(gaps, key=lambda key: gaps[key])]


def behind_the_name_first(window: Window) -> list[int]:
    end = int(window.words.last[asked(window)[2] + 1])
    return [min((key for key in contents(window) if key > end), default=contents(window)[-1])]


def before_the_name_first(window: Window) -> list[int]:
    start = int(window.words.first[asked(window)[2]])
    return [max((key for key in contents(window) if key < start), default=contents(window)[0])]


def words_from_the_name(steps: int) -> Look:
    def place(window: Window) -> list[int]:
        row = asked(window)[2] + (steps if steps < 0 else steps + 1)
        return [int(window.words.last[max(0, row)])]

    return place


def the_name(window: Window) -> list[int]:
    return [int(window.words.last[asked(window)[2] + 1])]


LAZY: dict[str, Look] = (
    {
        each.__name__: each
        for each in (
            contents,
            by_colour,
            by_kind,
            by_sentence,
            by_either_word,
            nearest_to_the_name,
            behind_the_name_first,
            before_the_name_first,
            the_name,
            same_token,
            after_same_token,
        )
    }
    | {f"content {place}": numbered(place) for place in range(4)}
    | {
        f"{steps:+d} words from the name": words_from_the_name(steps)
        for steps in (*range(-8, 0), *range(1, 9))
    }
)


def scored(windows: list[Window], heads: list[tuple[Look, float]]) -> list[Any]:
    """For each head its row."""

    def patterns(window: Window) -> np.ndarray:
        return np.stack([look(window, *head) for head in heads])[None]

    return [*judged(hs.score_patterns(patterns, windows, types=["binding"])).itertuples()]


NOISES = (0.0, 0.1, 0.2, 0.5)


@pytest.fixture(scope="module")
def noisy(windows) -> dict[float, Any]:
    """The row of the right head at each noise."""
    rows = scored(windows, [(right, noise) for noise in NOISES])
    return dict(zip(NOISES, rows, strict=True))


@pytest.fixture(scope="module")
def lazy(windows) -> dict[str, Any]:
    """The row of each lazy head."""
    rows = scored(windows, [(habit, 0.0) for habit in LAZY.values()])
    return dict(zip(LAZY, rows, strict=True))


def test_each_container_is_asked_for_once_and_no_word_of_its_name_says_which(windows):
    places = Counter()
    for window in windows:
        assert len(contents(window)) == 4
        assert held_by(window)[asked(window)[:2]] == right(window)[0]
        places[contents(window).index(right(window)[0])] += 1
        assert len(by_colour(window)) == len(by_kind(window)) == len(by_sentence(window)) == 2
        # the mate in the sentence shares a colour or a kind
        assert {*by_sentence(window)} <= {*by_colour(window), *by_kind(window)}
    assert set(places.values()) == {DOCUMENTS}
    assert {window.document for window in windows} == set(range(DOCUMENTS))


def test_the_same_word_leads_nowhere(windows):
    for window in windows:
        (query,) = set(window.arrows.query.tolist())
        row = window.words.last.tolist().index(query)
        assert window.words.lemma[row] not in window.words.lemma[:row]


def test_the_content_stands_on_both_sides_of_its_name_at_many_distances(windows):
    distances = Counter(
        right(window)[0] - int(window.words.first[asked(window)[2]]) for window in windows
    )
    assert len(distances) >= 8
    assert max(distances.values()) <= 0.3 * len(windows)
    before = sum(count for distance, count in distances.items() if distance < 0)
    assert 0.2 <= before / len(windows) <= 0.8


@pytest.mark.parametrize("noise", NOISES)
def test_a_head_that_finds_what_is_held_is_tagged(noisy, noise):
    row = noisy[noise]
    assert row.n == DOCUMENTS * 4
    assert row.verdict == "tagged"
    assert row.mass == pytest.approx(1 - noise, abs=0.1)
    assert row.control < 0.1


@pytest.mark.parametrize("habit", LAZY)
def test_a_lazy_head_is_refused(lazy, habit):
    assert lazy[habit].verdict in {"no", "narrowly refused"}
    assert lazy[habit].refused_alone


def test_who_knows_a_colour_a_kind_or_a_sentence_alone_has_half_of_it_elsewhere(lazy):
    for habit in (by_colour, by_kind, by_sentence, by_either_word):
        row = lazy[habit.__name__]
        assert row.lift > 0.1
        assert row.mass <= row.matched + 1e-6
        assert row.verdict == "no"


def test_what_looks_at_contents_whatever_is_asked_gains_nothing(lazy):
    for habit in ("contents", "content 0", "content 3"):
        assert lazy[habit].lift == pytest.approx(0, abs=1e-6)


def test_texts_that_are_longer_than_a_window_are_left_out(encoder):
    assert container_windows(encoder, max_length=12, seed=3, count=2) == []
