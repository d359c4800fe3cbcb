"""Filter heads: those that find the item that fits, and the lazy ones that must not pass for them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.relations.filter import FLOOR
from headscope.stimuli.item_lists import CATEGORIES, FAMILIES, LURE, choice_windows
from tests.helpers.refusals import judged
from tests.relations.question_heads import Look, after_same_token, look, same_token

DOCUMENTS = 16
KINDS = tuple(family.kind for family in FAMILIES)


@pytest.fixture(scope="module")
def windows(encoder) -> list[Window]:
    return choice_windows(encoder, max_length=128, seed=3, count=DOCUMENTS)


def kind_of(window: Window) -> str:
    (kind,) = {*window.arrows.kind.tolist()} & {*KINDS}
    return kind


def items(window: Window) -> list[int]:
    """Last tokens of all items, from the first to the last: they are the only nouns."""
    words = window.words
    query = int(window.arrows.query[0])
    return words.last[(words.upos == "NOUN") & (words.last < query)].tolist()


def forms(window: Window) -> dict[str, int]:
    words = window.words
    return {words.lemma[words.last.tolist().index(place)]: place for place in items(window)}


def category(window: Window) -> str:
    return next(lemma for lemma in reversed(window.words.lemma.tolist()) if lemma in CATEGORIES)


def fitting(window: Window) -> list[int]:
    return [int(window.arrows.last[window.arrows.right][0])]


def lure(window: Window) -> list[int]:
    arrows = window.arrows
    of_lure = (arrows.kind == f"{kind_of(window)}-{LURE}") & ~arrows.right
    return [int(arrows.last[of_lure][0])]


def of_its_field(window: Window) -> list[int]:
    return [*fitting(window), *lure(window)]


def numbered(place: int) -> Look:
    return lambda window: [items(window)[place]]


def longest(window: Window) -> list[int]:
    return [forms(window)[max(forms(window), key=len)]]


def shortest(window: Window) -> list[int]:
    return [forms(window)[min(forms(window), key=len)]]


def spelled_alike(window: Window) -> list[int]:
    """The longest beginning in common with the category's name, and of equal ones the last."""
    name = category(window)

    def common(form: str) -> int:
        return next((i for i, (a, b) in enumerate(zip(form, name, strict=False)) if a != b), 99)

    return [max((common(form), place) for form, place in forms(window).items())[1]]


def same_first_letter(window: Window) -> list[int]:
    name = category(window)
    return [place for form, place in forms(window).items() if form[0] == name[0]] or items(window)


def of_a_favourite(window: Window) -> list[int]:
    """Always members of the same categories, whatever is asked for."""
    liked = {
        *CATEGORIES["fruit"].members,
        *CATEGORIES["tool"].members,
        *CATEGORIES["drink"].members,
    }
    return [place for form, place in forms(window).items() if form in liked] or items(window)


def members(window: Window) -> list[int]:
    """Whatever is a member of any category, not what is only near one."""
    every = {member for one in CATEGORIES.values() for member in one.members}
    return [place for form, place in forms(window).items() if form in every]


def after_a_mark(window: Window) -> list[int]:
    """The word behind the last comma, semicolon, stroke, dash or bracket before the question."""
    strings = window.strings[: items(window)[-1]]
    marks = [i for i, string in enumerate(strings) if string.strip() in {*",;/-.)"}]
    return [marks[-1] + 1]


def name_of_the_category(window: Window) -> list[int]:
    words = window.words
    rows = np.flatnonzero(words.lemma == category(window))
    return [int(words.last[rows[-1]])]


LAZY: dict[str, Look] = {
    each.__name__: each
    for each in (
        items,
        lure,
        of_its_field,
        longest,
        shortest,
        spelled_alike,
        same_first_letter,
        of_a_favourite,
        members,
        after_a_mark,
        same_token,
        after_same_token,
        name_of_the_category,
    )
} | {f"item {place}": numbered(place) for place in range(8)}


def verdicts(windows: list[Window], heads: list[tuple[Look, float]]) -> list[dict[str, Any]]:
    """For each head its row of each family."""

    def patterns(window: Window) -> np.ndarray:
        return np.stack([look(window, *head) for head in heads])[None]

    evidence = judged(hs.score_patterns(patterns, windows, types=["filter"]))
    return [
        {row.relation: row for row in rows.itertuples()} for _, rows in evidence.groupby("head")
    ]


def test_every_item_is_right_as_often_as_any_other_and_in_each_place(windows):
    places, right = Counter(), Counter()
    for window in windows:
        assert len(items(window)) == 8
        places[items(window).index(fitting(window)[0])] += 1
        for form, place in forms(window).items():
            right[window.document, kind_of(window), form] += place == fitting(window)[0]
    # the same list is asked for each of its members once, and never for what is near one
    assert Counter(right.values()) == {0: DOCUMENTS * 2 * 4, 1: DOCUMENTS * 2 * 4}
    assert min(places.values()) >= 0.04 * len(windows)
    assert {window.document for window in windows} == set(range(DOCUMENTS))


def test_no_word_is_of_two_categories():
    words = Counter(word for one in CATEGORIES.values() for word in {*one.members, *one.lures})
    assert set(words.values()) == {1}
    assert not set(words) & set(CATEGORIES)


def test_the_two_families_share_neither_a_format_nor_a_question():
    one, other = FAMILIES
    assert not {*one.formats} & {*other.formats}
    assert not {*one.questions} & {*other.questions}
    # within a line, and in lines
    assert {"\n" in after for _, _, after in one.formats} == {False}
    assert {after for _, _, after in other.formats} == {"\n"}


NOISES = (0.0, 0.1, 0.2, 0.5)


@pytest.fixture(scope="module")
def noisy(windows) -> dict[float, dict[str, Any]]:
    """The rows of the fitting head at each noise."""
    found = verdicts(windows, [(fitting, noise) for noise in NOISES])
    return dict(zip(NOISES, found, strict=True))


@pytest.fixture(scope="module")
def lazy(windows) -> dict[str, dict[str, Any]]:
    """The rows of each lazy head."""
    found = verdicts(windows, [(habit, 0.0) for habit in LAZY.values()])
    return dict(zip(LAZY, found, strict=True))


@pytest.mark.parametrize("noise", NOISES)
def test_a_head_that_finds_what_fits_is_tagged_in_both_families(noisy, noise):
    rows = noisy[noise]
    for kind in KINDS:
        assert rows[kind].n == DOCUMENTS * 4
        assert rows[kind].verdict == "tagged"
        assert rows[kind].mass == pytest.approx(1 - noise, abs=0.1)
        assert rows[kind].matched < 0.1


@pytest.mark.parametrize("habit", LAZY)
def test_a_lazy_head_is_refused(lazy, habit):
    assert {row.verdict for row in lazy[habit].values()} <= {"no", "narrowly refused"}
    assert all(row.refused_alone for row in lazy[habit].values())


def test_what_looks_at_items_whatever_is_asked_gains_nothing(lazy):
    for habit in ("items", "item 0"):
        for row in lazy[habit].values():
            assert row.lift == pytest.approx(0, abs=1e-6)


def test_who_matches_meaning_alone_has_as_much_on_the_word_of_its_field(lazy):
    for row in lazy["of_its_field"].values():
        assert row.mass == pytest.approx(row.matched)
        assert row.lift > 0.3
        assert row.verdict == "no"


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_filters_one_family_alone_is_refused(windows, kind):
    """Of the other it looks at all items alike, and so clears the floor."""

    def one_family(window: Window) -> list[int]:
        return fitting(window) if kind_of(window) == kind else items(window)

    (rows,) = verdicts(windows, [(one_family, 0.0)])
    assert rows[kind].mass == pytest.approx(1)
    assert min(row.mass for row in rows.values()) > FLOOR
    assert {row.verdict for row in rows.values()} <= {"no", "narrowly refused"}


def test_a_word_of_several_tokens_is_one_item(windows):
    assert any((window.arrows.last > window.arrows.first).any() for window in windows)
    (rows,) = verdicts(windows[:8], [(fitting, 0.0)])
    assert rows["inline"].mass == pytest.approx(1)


def test_texts_that_are_longer_than_a_window_are_left_out(encoder):
    assert choice_windows(encoder, max_length=12, seed=3, count=2) == []
