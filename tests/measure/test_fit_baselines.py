"""Baselines fitted on texts whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headscope.corpus.align import window_of_tokens
from headscope.corpus.document import Document, Word
from headscope.corpus.window import Window
from headscope.measure.fit_baselines import MAX_CONTESTED, fit_baselines
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.stimuli.natural_text import TextWindows

OBJECT = [relation for relation in relations_of(["all"]) if relation.id == "syntactic/obj:dep>head"]


def window(number: int, *, far: bool, stimulus: str = "text") -> Window:
    """A sentence of two verbs and an object: of the nearer one, or of the farther one."""
    classes = ["VERB", "ADV", "VERB", "ADV", "NOUN"]
    words = tuple(
        Word(f"w{i}", 3 * i, 3 * i + 2, 0, upos=upos, head=(0 if far else 2) if i == 4 else -1,
             deprel="obj" if i == 4 else "dep")
        for i, upos in enumerate(classes)
    )  # fmt: skip
    document = Document(f"d{number}", " ".join(w.form for w in words), words)
    found = window_of_tokens(["<bos>", *(w.form for w in words)], document)
    return replace(found, document=number, stimulus=stimulus)


def texts(far: list[bool]) -> list[Window]:
    return [window(number, far=each) for number, each in enumerate(far)]


def test_the_best_rule_and_what_it_gets_right():
    found = fit_baselines(texts([False] * 30 + [True] * 10), OBJECT)
    (facts,) = found.facts.values()
    assert facts["baseline_rate"] == pytest.approx(0.75)
    assert facts["best_offset_rate"] == pytest.approx(0.75)  # two back, here
    # where it is wrong "the second nearest verb" is right, and only there
    (first, last) = facts["natural_rules"]
    assert first == [0.75, 0.0]
    assert last == [0.25, 1.0]


def test_one_rule_is_chosen_on_the_whole_text_that_fits_it_best():
    # even documents have near verbs, odd ones far: more of these
    found = fit_baselines(texts([number % 5 != 0 for number in range(40)]), OBJECT)
    (facts,) = found.facts.values()
    assert facts["baseline_rate"] == 0.8
    (part,) = [p for p in found.parts(OBJECT) if p.name == "obj:dep>head/contested"]
    near, far = window(0, far=False), window(1, far=True)
    assert (len(part.pairs(near).queries), len(part.pairs(far).queries)) == (1, 0)


def test_more_text_is_taken_only_where_contested_queries_are_still_wanted():
    windows = texts([False] * 40 + [True] * 10)
    more = [window(100 + i, far=i % 2 == 0, stimulus="extra") for i in range(400)]
    made = [window(900 + i, far=True, stimulus="built") for i in range(400)]
    found = fit_baselines(windows, OBJECT, more, made, budget=10_000)
    assert (
        len(found.contested_text) == MAX_CONTESTED - 10
    )  # with the ten of the text there are enough
    assert {w.stimulus for w in found.contested_text} == {"extra"}
    assert found.synthetic_sentences == ()
    assert (
        len(fit_baselines(windows, OBJECT, more, made, budget=60).contested_text) == 10
    )  # of six tokens each


def test_sentences_made_for_it_serve_where_natural_text_has_too_few():
    windows = texts([False] * 40 + [True] * 10)
    made = [window(900 + i, far=True, stimulus="built") for i in range(400)]
    found = fit_baselines(windows, OBJECT, [], made, budget=10_000)
    assert len(found.synthetic_sentences) == MAX_CONTESTED
    (facts,) = found.facts.values()
    assert facts["synthetic_rules"][-1][1] == 1
    names = [part.name.removeprefix("obj:dep>head") for part in found.parts(OBJECT)]
    assert names == ["", "/matched", "/contested", "/synthetic"]


def test_text_that_is_still_to_be_read_is_not_taken_for_its_contested_queries():
    tokenizer = load_model("mini").tokenizer
    asked = {"max_tokens": 3_000, "max_length": 64, "seed": 0}
    whole = [w.name for w in TextWindows(["gold"], tokenizer, **asked)]
    text = TextWindows(["gold"], tokenizer, **asked)
    coming = iter(text)
    first = [next(coming).name for _ in range(5)]
    assert list(text.remaining()) == []
    assert first + [w.name for w in coming] == whole
    beyond = next(text.remaining())
    assert beyond.stimulus == "extra"
    assert beyond.name not in whole
    assert text.tokens < 3_000 + 64
