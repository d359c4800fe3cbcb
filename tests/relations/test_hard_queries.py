"""Queries that are compared, and their candidates, against slow loops over words."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.corpus.align import window_of_tokens
from headscope.corpus.window import Window
from headscope.relations import relations_of
from headscope.relations.baselines import BASELINES, CLASS_COUNT
from headscope.relations.hard_queries import ChosenBaseline, candidates
from headscope.relations.pairs import earlier_keys, pairs
from headscope.relations.parts import EASY, HARD, ComparedPart, part_name, with_parts
from headscope.relations.relation import Relation, targets_of
from headscope.relations.window_pairs import WindowPairs
from tests.helpers.prose import gum_windows
from tests.relations.examples import LETTERS

SUBJECT = next(r for r in relations_of(["syntactic"]) if r.name == "nsubj:head>dep")


def parts(relation: Relation, baseline: str) -> tuple[dict[str, Relation], ChosenBaseline]:
    number = list(BASELINES).index(baseline)
    chosen = ChosenBaseline(np.full(CLASS_COUNT, number), np.ones(CLASS_COUNT, bool))
    found = with_parts([relation], {relation.id: chosen})
    return {part.name: part for part in found}, chosen


def word_at(window: Window, position: int) -> int:
    words = window.words
    inside = np.flatnonzero((words.first <= position) & (words.last >= position))
    return int(inside[0]) if len(inside) else -1


@pytest.mark.parametrize("baseline", ["nearest-NOUN", "2-words-back"])
def test_as_many_easy_queries_are_compared_as_hard_ones_and_at_least_one(baseline):
    compared, chosen = parts(SUBJECT, baseline)
    fewer = 0
    for window in gum_windows(6_000):
        targets = targets_of(SUBJECT, window)
        pick = chosen.picks(SUBJECT, WindowPairs(window))
        hard, easy = [], []
        for query in sorted(set(targets.query.tolist())):
            keys = targets.key[targets.query == query].tolist()
            if pick[query] >= 0:
                (easy if pick[query] in keys else hard).append(query)
        counts = {
            name: len(targets_of(compared[part_name(SUBJECT.name, name)], window).queries)
            for name in (HARD, EASY)
        }
        assert counts[HARD] == min(8, len(hard))
        assert counts[EASY] == min(len(easy), max(1, counts[HARD]))
        fewer += counts[EASY] < min(8, len(easy))
    assert fewer > 0


def test_no_token_of_the_query_s_own_word_is_a_candidate():
    compared, _ = parts(SUBJECT, "nearest-NOUN")
    part = compared[part_name(SUBJECT.name, HARD)]
    assert isinstance(part, ComparedPart)
    in_parts = 0
    for window in gum_windows(6_000):
        found = WindowPairs(window)
        targets, cells = found.targets(part), part.candidates_in(found)
        for query, key in zip(cells.query.tolist(), cells.key.tolist(), strict=True):
            assert word_at(window, key) != word_at(window, query) or word_at(window, key) < 0
        own = [word_at(window, query) for query in targets.query.tolist()]
        in_parts += sum(window.words.first[word] < window.words.last[word] for word in own)
    assert in_parts > 0  # words of several tokens were among them


def test_earlier_keys_come_before_their_query():
    cells = earlier_keys(np.array([3, 5]), np.array([0, 3, 4, 7]))
    found = sorted(zip(cells.query.tolist(), cells.key.tolist(), strict=True))
    assert found == [(3, 0), (5, 0), (5, 3), (5, 4)]


def test_a_query_of_no_word_is_no_candidate_of_its_own():
    """Tokens 1 to 4 of no word: of the query 4 with the target 2 the others are 1 and 3."""
    window = window_of_tokens(LETTERS[:6])
    pick = np.full(6, -1)
    targets = pairs(np.array([4]), np.array([2]))
    cells = candidates(window, targets, pick, np.ones(CLASS_COUNT, bool))
    assert sorted(cells.key.tolist()) == [1, 3]
    assert set(cells.query.tolist()) == {4}
