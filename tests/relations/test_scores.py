"""Every relation passes the same list, on patterns written by hand."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.errors import ChoiceError
from headscope.relations import head_types, relations_of
from tests.relations.examples import EXAMPLES, KEYS, KEYS_TEXT, Example

every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.relation)


def pattern(example: Example, *, habit: str) -> np.ndarray:
    """One head: `perfect` looks at the targets, `never` at others, `uniform` everywhere."""
    n = len(example.tokens)
    a = np.zeros((n, n))
    for q in range(n):
        if habit == "uniform":
            a[q, : q + 1] = 1 / (q + 1)
        elif habit == "perfect" and q in example.targets:
            a[q, example.targets[q]] = 1 / len(example.targets[q])
        else:
            # anything that is no target: the first token, or the query itself
            a[q, q if example.targets.get(q) == [0] else 0] = 1
    return a[None, None]


HABITS = ("perfect", "never", "uniform")


def habits(example: Example) -> np.ndarray:
    """A head of each habit."""
    return np.concatenate([pattern(example, habit=habit) for habit in HABITS], axis=1)


def rows(run: hs.Run, example: Example) -> dict[str, pd.Series]:
    """What is found of the example's relation, for the head of each habit."""
    found = run.evidence[run.evidence["type"] + "/" + run.evidence["relation"] == example.relation]
    assert found["head"].tolist() == [0, 1, 2]
    return dict(zip(HABITS, (row for _, row in found.iterrows()), strict=True))


@cache
def _scored(place: int) -> dict[str, pd.Series]:
    example = EXAMPLES[place]
    a, types = habits(example), on_request(example)
    return rows(hs.score_patterns(a, example.document, example.tokens, types=types), example)


def on_request(example: Example) -> list[str] | None:
    """The example's type where it is asked by name alone; else None, for all types."""
    name = example.relation.split("/")[0]
    return [name] if head_types()[name].on_request else None


def row(example: Example, habit: str) -> pd.Series:
    return _scored(EXAMPLES.index(example))[habit]


@every_example
def test_a_perfect_head_scores_one(example):
    found = row(example, "perfect")
    assert found["n"] == len(example.targets)
    assert found["mass"] == pytest.approx(1)
    if example.relation == "sink/first-token":
        assert np.isnan(found["hit_rate"])  # the first token is left out of the arg-max
    else:
        assert found["hit_rate"] == pytest.approx(1)


@every_example
def test_a_head_that_never_looks_there_scores_zero(example):
    found = row(example, "never")
    assert found["mass"] == 0
    assert found["lift"] <= 0
    assert not found["hit_rate"] > 0


@every_example
def test_a_uniform_head_scores_the_share_of_target_keys(example):
    found = row(example, "uniform")
    expected = np.mean([len(keys) / (q + 1) for q, keys in example.targets.items()])
    assert found["mass"] == pytest.approx(expected)
    assert found["chance"] == pytest.approx(expected)


@every_example
def test_a_uniform_head_hits_each_target_as_often_as_any_other_key(example):
    """A row of q equal keys, the first token left out, gives each of them a q-th of its hit."""
    if example.relation == "sink/first-token":
        return
    expected = np.mean([len(keys) / q for q, keys in example.targets.items()])
    assert row(example, "uniform")["hit_rate"] == pytest.approx(expected, abs=1e-6)


@every_example
def test_its_type_alone_and_beside_a_document_too_short_finds_the_same(example):
    """What is too short contributes nothing, nor do other types; inputs are left as they were."""
    a, short = habits(example), np.array([[[[1.0, 0], [0.5, 0.5]]]]).repeat(len(HABITS), axis=1)
    before, tokens = a.copy(), list(example.tokens)
    run = hs.score_patterns(
        [a, short],
        [example.document, None],
        [example.tokens, ["<bos>", "zz"]],
        types=[example.relation.split("/")[0]],
    )
    assert np.array_equal(a, before)
    assert example.tokens == tokens
    columns = ["n", "mass", "control", "chance", "hit_rate"]
    for habit, alone in rows(run, example).items():
        together = row(example, habit)[columns].astype(float)
        assert alone[columns].astype(float).to_numpy() == pytest.approx(together, nan_ok=True)


def test_the_examples_cover_every_type_and_all_relations_but_sister_rows():
    covered = {e.relation for e in EXAMPLES}
    assert {e.split("/")[0] for e in covered} == {n for n, t in head_types().items() if t.relations}
    rest = {
        r.id for r in relations_of(["all"]) if r.type not in ("syntactic", "positional")
    } - covered
    # the nearest word of each class is one row, and a resting column needs longer windows
    assert {name for name in rest if "/nearest-" not in name} == {"sink/resting-column"}


def previous_token(n: int) -> np.ndarray:
    return np.eye(n, k=-1)[None, None] + np.eye(1, n * n).reshape(1, 1, n, n)


def test_a_previous_token_head_gains_nothing_in_a_relation_of_that_distance():
    """Sums of one query's targets come before the mean, and the control has the same distance."""
    a = previous_token(len(KEYS))
    run = hs.score_patterns(a, KEYS_TEXT, KEYS, types=["syntactic"])
    rows = run.evidence.set_index("relation")
    assert rows.loc["iobj:dep>head", "mass"] == 1
    assert rows.loc["iobj:dep>head", "matched"] == 1
    assert rows.loc["iobj:dep>head", "best_offset_rate"] == 1


def test_the_best_offset_is_that_of_the_commonest_distance():
    run = hs.score_patterns(
        previous_token(len(KEYS)), KEYS_TEXT, KEYS, types=["syntactic", "coreference"]
    )
    rows = run.evidence.set_index("relation")
    # told→Anna 1 back, find→she 3 back, here→They 2 back: any offset gets one of three
    assert rows.loc["nsubj:head>dep", "best_offset_rate"] == pytest.approx(1 / 3)
    # she→Anna and They→keys are both four back
    assert rows.loc["pronoun", "best_offset_rate"] == 1


def test_a_head_for_the_nearest_word_earns_no_semantic_tag():
    """It hits the related word in a third of the pair sentences, and so does the simple rule."""
    from headscope.corpus.word_pairs import shipped_pairs
    from headscope.stimuli.word_pairs import pair_documents

    documents, patterns, tokens = [], [], []
    for document in pair_documents(shipped_pairs(), count=64, seed=0):
        words = ["<s>", *(word.form for word in document.words)]
        a = np.zeros((1, 1, len(words), len(words)))
        content = [i for i, word in enumerate(document.words, 1) if word.upos != "X"]
        for q in range(len(words)):
            nearest = max((i for i in content if i < q), default=0)
            a[0, 0, q, nearest] = 1
        documents.append(document)
        patterns.append(a)
        tokens.append(words)
    run = hs.score_patterns(patterns, documents, tokens, types=["semantic"])
    assert (run.evidence["mass"] > 0.25).all()
    assert not run.evidence["tagged"].any()
    assert (run.evidence["hit_rate"] < run.evidence["baseline_rate"] + 0.1).all()


def test_relations_of_ones_own_are_checked_before_any_work():
    from dataclasses import replace

    from headscope.relations import check_relations
    from headscope.relations.relation import NATURAL

    one = relations_of(["induction"])[0]
    with pytest.raises(hs.HeadscopeError, match="two relations are called induction/repeat"):
        check_relations([one, one])
    with pytest.raises(
        ChoiceError, match=r"no stimulus for induction/repeat named 'texts'.*; choose"
    ):
        check_relations([replace(one, stimuli=("texts",))])
    rule = replace(one.rule, beat_baseline_by=0.1)
    with pytest.raises(hs.HeadscopeError, match="has no baseline to compare with"):
        check_relations([replace(one, rule=rule)])
    for name in ({"type": "a;b"}, {"name": "a\rb"}, {"type": "\x1b[1m"}, {"name": f"a/{NATURAL}"}):
        with pytest.raises(hs.HeadscopeError, match="invalid relation name"):
            check_relations([replace(one, **name)])
