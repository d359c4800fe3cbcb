"""Numbers of the pages that files of the checkout state, too."""

from __future__ import annotations

import re
from pathlib import Path

import headscope as hs
from headscope.attention_kind import CAUSAL
from headscope.relations.baselines import ALL_BASELINES, EARLIER
from headscope.relations.reference_baselines import reference_baselines

METHOD = (Path(__file__).parents[2] / "docs" / "explanation" / "method.md").read_text("utf-8")


def number(pattern: str) -> float:
    """The number that a page writes at a place."""
    (found,) = re.findall(pattern, METHOD)
    return float(found.replace(",", ""))


def test_baselines_are_as_many_and_as_often_right_as_the_method_states():
    assert len(EARLIER) == number(r"every\s+head\s+with\s+(\d+)\s+\*\*baselines")
    assert len(ALL_BASELINES) == number(r"\((\d+)\s+for\s+encoders")
    nearest_verb = reference_baselines(CAUSAL)["syntactic/obj:dep>head"]
    assert nearest_verb.name == "nearest-VERB"
    assert round(100 * nearest_verb.rate) == number(r"governs\s+(\d+)\s+%\s+of\s+objects")


def test_the_tag_that_is_explained_step_by_step_has_its_numbers():
    evidence = hs.load("atlas:smollm2").evidence
    is_head = (evidence["layer"] == 10) & (evidence["head"] == 1)
    (row,) = evidence[is_head & (evidence["relation"] == "obj:dep>head")].to_dict("records")
    assert row["n"] == number(r"The text has ([\d,]+) objects")
    assert round(row["mass"], 3) == number(r"puts (0\.\d+) of its attention on its verb")
    assert round(row["lift"], 3) == number(r"farther verbs is (0\.\d+)")
    assert row["hard_n"] == number(r"nearest verb is wrong at (\d+)\.")
    limit = number(r"q < (1e-\d+)\.")
    assert limit / 10 < row["q_value"] < limit
    assert round(row["hard_baseline_rate"], 2) == number(r"mixture of baselines\s+reaches (0\.\d+)")
    assert round(row["beyond_surrogate"], 2) == number(r"all candidates at (0\.\d+) of the")
    assert round(row["hard_rate"], 2) == number(r"mean preference is (0\.\d+) \[")
