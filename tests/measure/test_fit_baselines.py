"""Baselines fitted on texts whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headscope.corpus.align import window_of_tokens
from headscope.corpus.document import Document, Word
from headscope.corpus.window import Window
from headscope.measure.fit_baselines import fit_baselines
from headscope.measure.text import prepare_text
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.relations.relation import MATCHED_CONTROL, targets_of
from headscope.settings import Settings

OBJECT = [relation for relation in relations_of(["all"]) if relation.id == "syntactic/obj:dep>head"]


def window(number: int, *, far: bool, stimulus: str = "text") -> Window:
    """A sentence of two verbs and an object: of the nearer one, or of the farther one."""
    classes = ["VERB", "ADV", "VERB", "ADV", "NOUN"]
    words = tuple(
        Word(
            f"w{i}",
            3 * i,
            3 * i + 2,
            0,
            upos=upos,
            head=(0 if far else 2) if i == 4 else -1,
            deprel="obj" if i == 4 else "dep",
        )
        for i, upos in enumerate(classes)
    )
    document = Document(f"d{number}", " ".join(w.form for w in words), words)
    found = window_of_tokens(["<bos>", *(w.form for w in words)], document)
    return replace(found, document=number, stimulus=stimulus)


def texts(far: list[bool]) -> list[Window]:
    return [window(number, far=each) for number, each in enumerate(far)]


def test_the_best_baseline_and_what_it_gets_right():
    found = fit_baselines(texts([False] * 30 + [True] * 10), OBJECT)
    (facts,) = found.facts.values()
    assert facts["baseline_rate"] == pytest.approx(0.75)
    # where it is wrong "the second nearest verb" is right, and only there
    assert facts["baselines"] == [[1.0, 0.0], [0.0, 1.0]]
    assert facts["hard_queries"] == 10


def test_one_baseline_is_chosen_on_the_whole_text_that_fits_it_best():
    # even documents have near verbs, odd ones far: more of these
    found = fit_baselines(texts([number % 5 != 0 for number in range(40)]), OBJECT)
    (facts,) = found.facts.values()
    assert facts["baseline_rate"] == 0.8
    (part,) = [p for p in found.parts(OBJECT) if p.name == "obj:dep>head/hard"]
    near, far = window(0, far=False), window(1, far=True)
    assert (len(targets_of(part, near)), len(targets_of(part, far))) == (1, 0)


def test_the_challenge_set_counts_for_hard_and_easy_queries_alone():
    challenge = [window(100 + i, far=i % 2 == 0, stimulus="challenge") for i in range(20)]
    found = fit_baselines(texts([False] * 30 + [True] * 10), OBJECT, challenge)
    (facts,) = found.facts.values()
    assert (facts["baseline_rate"], facts["hard_queries"]) == (0.75, 20)
    parts = {part.name.rpartition("/")[2]: part for part in found.parts(OBJECT)[1:]}
    assert set(parts) == {MATCHED_CONTROL, "hard", "easy"}
    assert targets_of(parts["hard"], challenge[0]).query.tolist() == [5]
    assert targets_of(parts["easy"], challenge[0]).query.tolist() == []


def test_the_challenge_set_is_left_out_if_no_relation_with_a_baseline_has_a_query():
    model = load_model("mini")
    text = prepare_text(model, OBJECT, ["gold"], Settings(max_tokens=500))
    plain = [replace(each, words=each.words.between(0, 0, 0)) for each in texts([False, True])]
    assert text.challenge
    assert text.needed_by(fit_baselines(texts([False]), OBJECT)).others == text.others
    assert text.needed_by(fit_baselines(plain, OBJECT, text.challenge)).others == text.synthetic
