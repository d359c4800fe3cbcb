"""Prompts as windows: what is asked where, and which a tokenizer cannot ask."""

from __future__ import annotations

import pytest

from headscope.relations.effects import EFFECTS, prompt_kinds
from headscope.stimuli.prompts import agreement_pairs, anaphor_pairs, draws, prompt_windows
from tests.helpers.prose import mini_tokenizer


def asked(kind: str):
    effects = [each for each in EFFECTS if each.prompt == kind]
    return prompt_windows(mini_tokenizer(), prompt_kinds(effects), 128, seed=0, count=12)


def test_every_answer_is_a_first_token_of_its_word_and_of_no_other():
    found = asked("indirect-object")
    texts = {p.text: p for _, ps in draws(12, seed=0) for p in ps if p.kind == "indirect-object"}
    assert len(found.windows) == found.usable["indirect-object"] > 0
    for window in found.windows:
        (question,) = window.questions
        assert question.query == len(window) - 1
        prompt = texts["".join(window.strings[1:])]
        sides = [set(each.tolist()) for each in (question.right, question.wrong, question.other)]
        assert not sides[0] & (sides[1] | sides[2])
        for tokens, words in zip(sides, (prompt.right, prompt.wrong, prompt.other), strict=True):
            for spelled in mini_tokenizer().spell(sorted(tokens)):
                assert any(word.startswith(spelled.strip()) for word in words)


def test_what_cannot_be_asked_is_counted():
    found = prompt_windows(mini_tokenizer(), prompt_kinds(EFFECTS), 128, seed=0, count=12)
    assert all(found.usable.get(kind, 0) <= count for kind, count in found.sampled.items())
    assert sum(len(w.questions) for w in found.windows) == sum(found.usable.values())
    missing = [k for k, count in found.sampled.items() if found.usable.get(k, 0) < count]
    assert missing
    assert all(kind in found.notes[0] for kind in missing)


@pytest.mark.parametrize("half", [0, 1])
def test_each_half_of_the_documents_has_every_version(half):
    texts = [p for document, ps in draws(24, seed=0) for p in ps if document % 2 == half]
    forms = [p.right[0] for p in texts if p.kind == "agreement"]
    assert forms.count("open") == forms.count("opens")
    due = [p.text.index(p.right[0]) < p.text.index(p.wrong[0]) for p in texts if p.kind[0] == "i"]
    assert due.count(True) == due.count(False) == 6


def test_longer_prompts_than_a_model_reads_are_left_out():
    effects = [each for each in EFFECTS if each.prompt]
    assert all(
        len(w) <= 12
        for w in prompt_windows(
            mini_tokenizer(), prompt_kinds(effects), 12, seed=0, count=4
        ).windows
    )


def test_minimal_pairs_differ_in_one_word_and_are_balanced():
    for pairs in (agreement_pairs(40, seed=3), anaphor_pairs(40, seed=3)):
        for pair in pairs:
            words = [
                (a, b) for a, b in zip(pair.good.split(), pair.bad.split(), strict=True) if a != b
            ]
            assert len(words) == 1
    ends = [pair.good.split()[-1] for pair in anaphor_pairs(40, seed=3)]
    assert ends.count("herself.") == 20
