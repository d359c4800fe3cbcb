"""Windows of each stimulus: what they hold, and that nothing else gives the answer away."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from headscope.relations.types.concept_induction import FEWEST_WORDS, LENGTHS, WORDS
from headscope.relations.types.semantic import RELATIONS, pair_documents, shipped_pairs
from headscope.stimuli.facts import FACTS, HALF_RIGHT, IN_DOCUMENT, KIND, PROPERTY
from headscope.stimuli.natural_text import interleave_some
from headscope.stimuli.repeat import repeat_windows
from tests.helpers.prose import built_windows_of, mini_tokenizer
from tests.relations.looking import candidates, knows

DOCUMENTS = 16


def test_repeats_are_random_copies_without_special_tokens():
    vocabulary = np.arange(10, 400)
    windows, again = (
        repeat_windows(vocabulary, mini_tokenizer(), count=30, seed=3, max_length=256)
        for _ in range(2)
    )
    for window in windows:
        n = window.copy_length
        assert 25 <= n <= 64
        assert len(window) == 2 * n + 1
        assert np.array_equal(window.tokens[1 : n + 1], window.tokens[n + 1 :])
        assert len(set(window.tokens[1 : n + 1])) == n
        assert window.tokens[1:].min() >= 10
    assert len({w.copy_length for w in windows}) > 5
    assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(windows, again, strict=True))


def test_long_words_are_of_several_tokens_and_no_token_comes_twice():
    windows = built_windows_of(WORDS, max_length=256, documents=16)
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


def test_each_fact_is_asked_for_and_nothing_leads_there_by_the_same_word():
    windows = built_windows_of(FACTS, documents=16)
    positions = Counter()
    for window in windows:
        ((query, answer),) = knows(KIND)(window).items()
        assert window.tokens[query] not in window.tokens[:query]
        assert window.tokens[query] not in window.tokens[window.arrows.last]
        values = candidates(KIND)(window)[query]
        assert len(values) == 6
        assert len(candidates(HALF_RIGHT)(window)[query]) == 4
        assert len(candidates(PROPERTY)(window)[query]) == 3
        positions[values.index(answer)] += 1
    count = DOCUMENTS * IN_DOCUMENT
    assert positions.total() == count
    assert min(positions[place] for place in range(6)) >= 0.1 * count


@pytest.mark.parametrize("seed", [1, 2])
def test_each_pair_sentence_holds_one_related_word_among_unrelated_ones_in_any_place(seed):
    lexicon, places, seen = shipped_pairs(), list[int](), list[frozenset[str]]()
    documents = pair_documents(lexicon, count=64, seed=seed)
    for document in documents:
        assert all(document.text[w.start : w.end] == w.form for w in document.words)
        assert "the France" not in document.text
        assert document.sentences == 2 * len(RELATIONS)
        for number in range(document.sentences):
            words = [w for w in document.words if w.sentence == number and w.upos != "X"]
            *earlier, query = (w.form for w in words)
            assert len(earlier) == 3
            assert len({w.upos for w in words}) == 1
            near = lexicon.any_relation(query.lower())
            (place,) = (i for i, word in enumerate(earlier) if word.lower() in near)
            places.append(place)
            seen.append(frozenset((earlier[place], query)))
    # no distance gives it away
    assert all(0.25 < places.count(i) / len(places) < 0.42 for i in range(3))
    assert len(seen) == len(set(seen)), "no pair comes twice while there are unused ones"
    assert documents == pair_documents(lexicon, count=64, seed=seed)
    assert documents != pair_documents(lexicon, count=64, seed=seed + 2)


def test_sixteen_marked_streams_are_read_in_turn_and_others_one_after_the_other():
    def stream(name: str, is_marked: bool):
        return iter([f"{name} first", f"{name} second"]), is_marked

    code = [f"code {number}" for number in range(17)]
    streams = [stream("prose", False), *(stream(name, True) for name in code)]
    read = list(interleave_some([*streams, stream("letter", False)]))
    assert read == [
        "prose first",
        "prose second",
        *(f"{name} first" for name in code[:16]),
        *(f"{name} second" for name in code[:16]),
        "letter first",
        "letter second",
        "code 16 first",
        "code 16 second",
    ]
