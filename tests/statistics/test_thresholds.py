"""Tags under other thresholds are what the rules themselves would say with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.corpus.shipped import mini_folder
from headscope.models.tokenizer import load_tokenizer
from headscope.relations import relations_of
from headscope.statistics import conditions
from headscope.statistics.judge_heads import weigh_run
from headscope.statistics.result import RunInfo
from headscope.statistics.tags import TAGGED, verdicts
from headscope.statistics.threshold_sensitivity import FACTORS, in_one_line, tags_by_threshold
from headscope.views.figures import FIGURES
from headscope.views.report.data import page_data
from tests.oracles.annotation_heads import oracles
from tests.oracles.baseline_heads import heuristics
from tests.oracles.known_heads import BenchmarkHeads

TYPES = ["sink", "syntactic", "coreference"]


@pytest.fixture(scope="module")
def run() -> hs.Run:
    """Oracles of syntax and reference with noise, and some habits, on natural text."""
    windows = hs.windows(None, load_tokenizer("mini", mini_folder()), max_tokens=16_000)
    asked = {"syntactic/conj:dep>head", "syntactic/nmod:dep>head", "coreference/chain"}
    known = [each for each in heuristics(windows) if "VERB" in each.name][:6]
    heads = BenchmarkHeads(known, oracles(windows, asked))
    return hs.score_patterns(heads, windows, types=TYPES)


def heads_by_type(evidence: pd.DataFrame, verdict: pd.Series) -> dict[str, int]:
    tagged = evidence[(verdict == TAGGED).to_numpy()].drop_duplicates(["layer", "head", "type"])
    return {str(name): int(n) for name, n in tagged["type"].value_counts().items()}


def curve(run: hs.Run) -> dict[tuple[str, float], dict[str, int]]:
    table = tags_by_threshold(run.evidence, run.rules, run.info["simple_rules"])
    rows = table[table["tags"] > 0].groupby(["threshold", "factor"])
    return {key: dict(zip(own["type"], own["tags"], strict=True)) for key, own in rows}  # type: ignore[misc]


def test_floors_are_those_of_other_rules(run):
    found = curve(run)
    for factor in FACTORS:
        rules = {name: replace(r, floor=r.floor * factor) for name, r in run.rules.items()}
        expected = heads_by_type(run.evidence, verdicts(run.evidence, rules))
        assert found["floor", factor] == expected, factor
    assert found["floor", 1.0] == heads_by_type(run.evidence, run.evidence["verdict"])


def test_controls_are_those_of_another_multiple(run, monkeypatch):
    found = curve(run)
    for factor in FACTORS:
        monkeypatch.setattr(conditions, "TIMES_CONTROL", 1.5 * factor)
        expected = heads_by_type(run.evidence, verdicts(run.evidence, run.rules))
        assert found["control", factor] == expected, factor


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_margins_are_those_of_a_run_that_was_judged_by_them(run, factor):
    """From the sums: another margin leaves a head other rules to beat."""
    relations = [
        each
        if each.rule.beat_baseline_by is None
        else replace(
            each, rule=replace(each.rule, beat_baseline_by=each.rule.beat_baseline_by * factor)
        )
        for each in relations_of(TYPES)
    ]
    other = weigh_run(run.tally, relations, seed=0, info=RunInfo.from_json(run.info)).judge()
    expected = heads_by_type(other.evidence, other.evidence["verdict"])
    assert curve(run)["margin", factor] == expected


def test_the_curve_has_something_to_tell(run):
    found = curve(run)
    assert found["control", 0.5] != found["control", 2.0]
    assert found["floor", 0.5] != found["floor", 2.0]


def test_no_threshold_that_is_stricter_gives_more_tags(run):
    table = tags_by_threshold(run.evidence, run.rules, run.info["simple_rules"])
    for _, own in table.groupby(["threshold", "type"]):
        assert (np.diff(own.sort_values("factor")["tags"]) <= 0).all()


def test_the_line_counts_what_a_tenth_would_change():
    rows = [("syntactic", 0.9, 7), ("syntactic", 1.0, 5), ("syntactic", 1.1, 2)]
    rows += [("induction", 0.9, 3), ("induction", 1.0, 3), ("induction", 1.1, 3)]
    rows += [("sink", 0.9, 9), ("sink", 1.0, 8), ("sink", 1.1, 8)]
    table = pd.DataFrame(
        [("floor", factor, name, tags) for name, factor, tags in rows]
        + [("margin", 1.1, "syntactic", 0)],
        columns=["threshold", "factor", "type", "tags"],
    )
    assert in_one_line(table) == (
        "Floors 10 % higher take 3 of 8 tags away, floors 10 % lower add 2; "
        "floors 10 % higher take 0 of 8 tags of attention sinks away, floors 10 % lower add 1."
    )


def test_the_report_and_the_picture_say_the_same(run):
    data = page_data(run)["thresholds"]
    table = tags_by_threshold(run.evidence, run.rules, run.info["simple_rules"])
    assert data["said"] == in_one_line(table)
    assert [each["factors"] for each in data["curves"]] == [list(FACTORS)] * 3
    floors = table[(table["threshold"] == "floor") & (table["type"] == "syntactic")]
    assert data["curves"][0]["types"]["syntactic"] == floors["tags"].tolist()
    panels = FIGURES["thresholds"](run).axes
    (line,) = [each for each in panels[0].lines if each.get_label() == "syntactic"]
    assert line.get_ydata().tolist() == floors.sort_values("factor")["tags"].tolist()
    assert "sink" not in [each.get_label() for each in panels[0].lines]


def test_evidence_without_a_row_has_no_curve(run):
    assert tags_by_threshold(run.evidence.head(0), run.rules).empty
