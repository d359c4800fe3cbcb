"""Attention of one query: the shares and terms of a hand-made model, and the model's attention."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.corpus.shipped import data_folder
from headscope.models.load import load_model
from headscope.models.text_window import text_window
from headscope.studies.explain.feature_model import (
    FeatureModel,
    Share,
    Unexplained,
    WeightedFeature,
)
from headscope.studies.explain.features import Feature
from headscope.studies.explain.one_query import PlainTextExplainer, without_annotation
from headscope.studies.explain.pattern_scores import Agreement, PatternScores
from tests.helpers.prose import gum_windows

GOLD = data_folder() / "corpora" / "gold.conllu"
TEXT = "the old keys and the old house"
WEIGHTS = {"token 0": 2.0, "offset-1": 1.5, "follower": 3.0}


def hand_made() -> FeatureModel:
    """A feature model with known weights."""
    share = Share(0.5, 0.4, 0.6)
    agreement = Agreement(explained=0.5, iou=0.5, correlation=0.5)
    terms = [
        WeightedFeature(Feature(name, "position"), "", weight, share)
        for name, weight in WEIGHTS.items()
    ]
    scores = PatternScores(all_keys=agreement, without_first=agreement)
    rest = Unexplained(total=0.5, by_class={}, by_token={})
    return FeatureModel(0, 0, 1.0, tuple(terms), 0.5, share, scores, rest)


def test_terms_and_shares_are_those_of_a_slow_loop(gpt2_folder):
    model = load_model(str(gpt2_folder))
    window = text_window(model, TEXT)
    explainer = PlainTextExplainer.of(model, [GOLD], windows=8, seed=0)
    explanation = explainer.explain(hand_made(), window)
    tokens = window.tokens.tolist()
    for query in range(1, len(tokens)):
        logits = []
        for key in range(query + 1):
            terms = {
                "token 0": WEIGHTS["token 0"] * (key == 0),
                "offset-1": WEIGHTS["offset-1"] * (key == query - 1 and key > 0),
                "follower": WEIGHTS["follower"]
                * (1 < key < query and tokens[key - 1] == tokens[query]),
            }
            printed = explanation.terms_at(query, key)
            ordered = sorted(terms.items(), key=lambda item: -item[1])
            assert printed == "; ".join(f"{name} {w:+.1f}" for name, w in ordered if w)
            logits.append(sum(terms.values()))
        total = sum(map(math.exp, logits))
        shares = [math.exp(logit) / total for logit in logits]
        assert explanation.shares[query, : query + 1].tolist() == pytest.approx(shares, abs=1e-5)
        assert explanation.shares[query, query + 1 :].tolist() == [0] * (len(tokens) - query - 1)


@pytest.mark.parametrize("query", [None, 3])
def test_attention_is_the_models_own_and_the_last_token_is_the_default(query, gpt2_folder):
    result = hs.explain_at(gpt2_folder, "L1H1", TEXT, GOLD, query=query, windows=8, features=2)
    ids = text_window(load_model(str(gpt2_folder)), TEXT).tokens
    network = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager")
    with torch.no_grad():
        output = network(torch.tensor(ids)[None], output_attentions=True)
    row = len(ids) - 1 if query is None else query
    expected = output.attentions[1][0, 1, row, : row + 1]
    assert result.table["attention"].tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert result.table["share"].sum() == pytest.approx(1, abs=1e-5)


def test_a_window_without_annotation_has_no_class_no_tree_and_no_mention():
    annotated = next(window for window in gum_windows(2_000) if len(window.mentions))
    plain = without_annotation(annotated)
    assert not plain.words.upos.any()
    assert (plain.words.head == -1).all()
    assert not len(plain.mentions)
    assert plain.words.first.tolist() == annotated.words.first.tolist()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--at", TEXT), "HEAD"),
        (("L0H0",), "--at"),
        (("L0H0", "--at", TEXT, "--query", 99), "query"),
        (("L7H0", "--at", TEXT), "L7H0"),
        (("--query", 1), "--at"),
        (("L0H0", "--at", TEXT, "--replace"), "--replace"),
        (("--programs", "programs.py", "--replace"), "--programs"),
        (("--figure", "bits.png"), "--figure"),
    ],
    ids=[
        "no head",
        "no text",
        "no such token",
        "no such head",
        "query alone",
        "a text and replacements",
        "programs and replacements",
        "a figure alone",
    ],
)
def test_a_bad_question_is_named(words, named, gpt2_folder, command):
    code, _, err = command("explain", gpt2_folder, *words)
    assert code == 2
    assert named in err
