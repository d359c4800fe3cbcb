"""Sentences cut out of a window are what they were, at other positions."""

from __future__ import annotations

import pytest

from headscope.measure.contested_sampling import stretches
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.stimuli.natural_text import TextWindows


@pytest.fixture(scope="module")
def windows():
    text = TextWindows(
        ["gum"], load_model("mini").tokenizer, max_tokens=4000, max_length=128, seed=3
    )
    return [window for window in text if window.words.sentence[-1] - window.words.sentence[0] > 3]


def test_a_stretch_holds_whole_sentences_and_one_before(windows):
    for window in windows:
        middle = int(window.words.last[window.words.sentence == window.words.sentence[0] + 2][0])
        (found,) = stretches(window, [(middle, middle)])
        assert found.tokens[0] == window.tokens[0]
        assert found.words.sentence.min() == window.words.sentence[0] + 1
        assert found.words.sentence.max() == window.words.sentence[0] + 2
        assert len(found.strings) == len(found.tokens) < len(window)


def test_what_is_true_of_a_stretch_is_true_of_its_window(windows):
    asked = [r for r in relations_of(["all"]) if r.type in ("syntactic", "coreference")]
    seen = 0
    for window in windows:
        stop = int(window.words.last[window.words.sentence == window.words.sentence[0] + 2][-1])
        start = int(window.words.first[window.words.sentence == window.words.sentence[0] + 2][0])
        (found,) = stretches(window, [(start, stop)])
        begin = int(window.words.first[window.words.sentence == window.words.sentence[0] + 1][0])
        offset = begin - int(found.words.first[0])
        for relation in asked:
            whole, part = relation.pairs(window), relation.pairs(found)
            cells = set(zip(whole.query.tolist(), whole.key.tolist(), strict=True))
            moved = set(
                zip((part.query + offset).tolist(), (part.key + offset).tolist(), strict=True)
            )
            assert moved <= cells
            inside = {c for c in cells if begin <= c[1] and c[0] <= stop}
            assert inside == moved
            seen += len(moved)
    assert seen > 200
