"""Text of `why`: controls, inputs, counts, missing numbers, and features that explain tags."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from headscope.relations.relation import Threshold
from headscope.statistics.columns import FEATURE_MODEL_COLUMNS, strongest_effects_first
from headscope.statistics.reasons import explained_by
from headscope.statistics.tags import with_thresholds
from headscope.views.head_account import explain_tags

RULE = Threshold(threshold=0.2, source="ours", meaning="its target", beat_baseline_by=0.1)
ROW = {
    "layer": 0,
    "head": 0,
    "type": "t",
    "relation": "r",
    "n": 80,
    "mass": 0.5,
    "control": 0.1,
    "lift": 0.4,
    "ci_low": 0.3,
    "ci_high": 0.5,
    "q_value": 1e-6,
    "hit_rate": 0.9,
    "chance": 0.05,
    "matched_control": 0.1,
    "baseline": "own",
    "baseline_rate": 0.4,
    "hard_n": 60.0,
    "hard_rate": 0.8,
    "hard_low": 0.7,
    "hard_high": 0.9,
    "easy_rate": 0.9,
    "hard_baseline_rate": 0.3,
    "mass_error": 0.02,
    "control_error": 0.02,
    "verdict": "tagged",
    "tagged": True,
}


def told(*changes: dict) -> str:
    rows = [ROW | {"relation": f"r{i}"} | change for i, change in enumerate(changes)]
    thresholds = {f"t/r{i}": RULE for i in range(len(rows))}
    return explain_tags(with_thresholds(pd.DataFrame(rows), thresholds), thresholds, 0, 0)


def test_the_first_lines_quote_the_stricter_control_of_all_that_the_verdict_uses():
    """Whichever control is larger decides, so no smaller one may stand in the short answer."""
    for control, matched_control, quoted in (
        (0.1, 0.3, "0.30 on other keys (matched)."),
        (0.3, 0.1, "0.30 on control keys."),
        (0.1, np.nan, "0.10 on control keys."),
    ):
        text = told({"control": control, "matched_control": matched_control})
        assert quoted in text.split("In short:\n")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("name", "meaning", "place"),
    [
        ("sink/first-token", "the first token of a text, an attention sink", "in text, "),
        ("semantic/synonym", "a word of similar meaning", "in text and word pairs, "),
        ("retrieval/value", "what the text says", "in facts and questions, "),
        # the meaning names the input, or nobody knows it
        ("induction/repeat", "its target, in repeated random tokens", ""),
        ("induction/natural", "its target, in natural text", ""),
        ("t/r", "its target", ""),
    ],
)
def test_every_share_of_attention_names_the_input_that_it_is_over(name, meaning, place):
    kind, relation = name.split("/")
    row = ROW | {"type": kind, "relation": relation}
    thresholds = {name: replace(RULE, meaning=meaning)}
    table = with_thresholds(pd.DataFrame([row]), thresholds)
    text = explain_tags(table, thresholds, 0, 0)
    places = re.findall(rf"^ *{name}: (.*)0\.50+ of its attention", text, re.MULTILINE)
    assert places == [place, place]


def test_the_strongest_effects_come_first_and_those_without_a_lift_last():
    lifts = pd.Series([0.1, np.nan, -0.9, 0.3], index=[*"abcd"])
    effects = pd.DataFrame({"lift": lifts, "threshold": [0.5, 0.5, 1.0, 0.5]})
    assert strongest_effects_first(effects).tolist() == ["c", "d", "a", "b"]


def test_counts_in_sentences_have_commas_between_thousands():
    large = {
        "n": 12_345,
        "hard_n": 4_321.0,
        "text_hard_n": 1_234.0,
        "text_verdict": "tagged",
        "top_rate": 0.5,
        "beyond_surrogate": 0.5,
        "surrogate_wrong": 2_345.0,
    }
    intervals = dict.fromkeys(("top_low", "beyond_low"), 0.4)
    intervals |= dict.fromkeys(("top_high", "beyond_high"), 0.6)
    # the text decides the first row and cannot decide the second
    open_row = {"hard_baseline_rate": 0.99, "verdict": "not identifiable", "tagged": False}
    text = told(large | intervals, large | intervals | open_row)
    assert not re.findall(r"(?<![.\d])\d{4,}", text)
    for count in ("12,345", "4,321", "1,234", "3,087", "2,345"):
        assert count in text
    assert "baselines reach a mean preference of 0.99" in text


def test_no_number_that_is_missing_is_printed():
    few = {"ci_low": np.nan, "ci_high": np.nan, "q_value": np.nan}
    text = told(few | {"verdict": "tagged"})
    assert "nan" not in text
    assert "q not known (too few documents), must be below 0.01; lift 0.400 (no interval" in text
    # what has no interval is no near miss
    assert "no relation has a lift" in told(few | {"tagged": False, "verdict": "no"})


def terms(*rows: tuple[str, float, float]) -> pd.DataFrame:
    """Features of one head's rule with weight and unique bits."""
    plain = dict.fromkeys(FEATURE_MODEL_COLUMNS, 0.0) | {
        "layer": 0,
        "head": 1,
        "kind": "",
        "queries": "",
    }
    own = [{**plain, "feature": f, "weight": w, "unique": u} for f, w, u in rows]
    return pd.DataFrame(own)[FEATURE_MODEL_COLUMNS]


def test_a_tag_without_unique_bits_is_explained_by_the_strongest_feature():
    table = terms(
        ("offset-2", 4.0, 0.4),
        ("syntactic/det:head>dep", 2.0, 0.1),
        ("key NOUN", -1.0, 0.3),
        ("syntactic/amod:head>dep", 0.1, 0.001),
    )
    tags = ["syntactic/det:head>dep", "syntactic/amod:head>dep", "positional/offset-2"]
    assert explained_by(table, 0, 1, tags) == [("syntactic/amod:head>dep", "offset-2")]
    assert explained_by(table, 0, 2, tags) == []
