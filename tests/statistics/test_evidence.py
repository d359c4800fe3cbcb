"""Evidence from tallies whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import headscope as hs
from headscope.measure.tally import BLOCKS, Tally
from headscope.relations.effects import no_tokens
from headscope.relations.relation import Relation, TagThresholds
from headscope.statistics.conditions import open_in_words
from headscope.statistics.estimates import weigh
from headscope.statistics.tags import (
    NARROW,
    NO,
    TAGGED,
    UNIDENTIFIABLE,
    countable_types,
    decidable_relations,
    head_table,
    reasons,
    verdicts,
    with_rules,
)
from headscope.statistics.thresholds import floor_sensitivity

NAMES = ("a/one", "a/two")
RELATIONS = [
    Relation(
        "a",
        name,
        pairs=no_tokens,
        control=no_tokens,
        rule=TagThresholds(0.1, "a source", f"thing {name}"),
    )
    for name in ("one", "two")
]


def simulated(lift: float, heads: int, rng: np.random.Generator, blocks: int = BLOCKS) -> Tally:
    """Blocks of 20 to 60 queries whose excess mass has this mean and a spread between blocks."""
    tally = Tally.zeros(NAMES, 1, heads)
    queries = rng.integers(20, 60, blocks)
    tally.queries[:blocks] = queries[:, None]
    excess = rng.normal(lift, 0.05, (blocks, 2, 1, heads)) * queries[:, None, None, None]
    tally.control[:blocks] = 0.2 * queries[:, None, None, None]
    tally.target[:blocks] = tally.control[:blocks] + excess
    return tally


def test_means_are_sums_over_queries_and_not_means_of_blocks():
    tally = Tally.zeros(NAMES, 1, 1)
    tally.queries[0, 0], tally.queries[1, 0] = 10, 30
    tally.target[0, 0], tally.target[1, 0] = 10, 6
    tally.control[0, 0], tally.control[1, 0] = 2, 2
    tally.hits[0, 0], tally.chance[0, 0] = 8, 2
    (row,) = weigh(tally, RELATIONS, seed=0).to_dict("records")
    assert (row["n"], row["mass"], row["control"], row["lift"]) == (
        40,
        0.4,
        0.1,
        pytest.approx(0.3),
    )
    assert (row["hit_rate"], row["chance"]) == (0.2, 0.05)
    assert np.isnan(row["best_offset_rate"])  # this relation has no simple rule to beat


def test_too_few_blocks_give_no_interval_and_no_q_value():
    evidence = weigh(simulated(0.3, 3, np.random.default_rng(0), blocks=7), RELATIONS, seed=0)
    assert evidence[["ci_low", "ci_high", "q_value"]].isna().all(axis=None)
    assert (verdicts(evidence, {r.id: r.rule for r in RELATIONS}) == NO).all()
    evidence = weigh(simulated(0.3, 3, np.random.default_rng(0), blocks=8), RELATIONS, seed=0)
    assert evidence[["ci_low", "ci_high", "q_value"]].notna().all(axis=None)


def test_p_values_are_those_of_a_t_test_when_blocks_are_of_one_size():
    rng = np.random.default_rng(2)
    tally = simulated(0.01, 50, rng)
    tally.queries[:] = 1
    excess = (tally.target - tally.control)[:, 0, 0]
    expected = stats.ttest_1samp(excess, 0, alternative="greater").pvalue
    found = weigh(tally, RELATIONS, seed=0)
    assert found.loc[found["relation"] == "one", "p_value"].to_numpy() == pytest.approx(expected)


GOOD = {
    "layer": 0, "head": 0, "type": "t", "relation": "r", "n": 500, "mass": 0.5, "control": 0.1,
    "lift": 0.4, "ci_low": 0.35, "ci_high": 0.45, "q_value": 1e-9, "hit_rate": 0.6,
    "best_offset_rate": 0.4, "twin_p999": np.nan, "chance": 0.05,
}  # fmt: skip
RULE = TagThresholds(0.2, "a source", "what it is about", times_chance=3.0, beat_baseline_by=0.1)


CONTESTED = GOOD | {
    "baseline": "nearest-VERB", "contested_n": 80, "contested_mass": 0.4, "rival": 0.1,
    "contested_lift": 0.3, "contested_low": 0.2, "contested_hit_rate": 0.5,
    "contested_rule_rate": 0.3, "matched": 0.1, "contested_p": 0.001, "contested_least_p": 0.00024,
    "contested_hit_low": 0.42, "contested_hit_high": 0.58, "contested_high": 0.4,
    "mass_error": 0.02, "control_error": 0.02, "hit_error": 0.02, "contested_error": 0.02,
    "matched_error": 0.05, "contested_rule_low": 0.3,
}  # fmt: skip


def tag(evidence: pd.DataFrame, rules: dict) -> pd.Series:
    return verdicts(evidence, rules) == TAGGED


def verdict_of(row: dict, rule: TagThresholds = RULE) -> str:
    (verdict,) = verdicts(pd.DataFrame([row]), {"t/r": rule})
    return verdict


def tagged(row: dict, rule: TagThresholds = RULE) -> bool:
    return verdict_of(row, rule) == TAGGED


def reasons_of(row: dict) -> list[str]:
    return reasons(with_rules(pd.DataFrame([row]), {"t/r": RULE}), {"t/r": RULE})


@pytest.mark.parametrize(
    ("row", "change", "condition"),
    [
        (GOOD, {"n": 49}, "49 queries, needs 50"),
        (GOOD, {"mass": 0.19}, "mass 0.190, floor 0.2"),
        (GOOD, {"ci_low": -0.01}, "must lie above 0"),
        (GOOD, {"ci_low": np.nan}, "must lie above 0"),
        (GOOD, {"q_value": 0.01}, "q 0.01, must be below 0.01"),
        (GOOD, {"q_value": np.nan}, "must be below 0.01"),
        (GOOD, {"control": 0.35}, "mass 0.500, 1.5 × control 0.350"),
        (GOOD, {"hit_rate": 0.49}, "hit rate 0.490, best fixed distance 0.400 + 0.10"),
        (GOOD, {"chance": 0.2}, "mass 0.500, 3 × chance 0.200"),
        (GOOD, {"twin_p999": 0.4}, "shuffled twin's 99.9th percentile 0.400"),
        (CONTESTED, {"contested_low": -0.01}, "“nearest verb” is wrong, lift 0.300 over what"),
        (CONTESTED, {"contested_p": 0.025}, "there p 0.025, must be below 0.025"),
        (CONTESTED, {"rival": 0.3}, "there mass 0.400, 1.5 × what the rule picks 0.300"),
        (
            CONTESTED,
            {"contested_hit_rate": 0.39, "contested_hit_low": 0.31},
            "there hit rate 0.390 [0.310, 0.580], any simple rule 0.300 + 0.10",
        ),
        (CONTESTED, {"contested_hit_low": 0.3}, "there hit rate 0.500 [0.300, 0.580]"),
        (CONTESTED, {"matched": 0.4}, "1.5 × second control 0.400"),
        (CONTESTED, {"matched_error": 0.4}, "second control 0.400 ± 0.400, must lie above 0"),
    ],
)
def test_every_condition_alone_prevents_a_tag_and_says_so(row, change, condition):
    assert tagged(row)
    assert tagged(CONTESTED | {"hit_rate": 0.41})  # the rule counts at contested queries alone
    assert not tagged(row | change)
    (sentence,) = reasons_of(row | change | {"tagged": False})
    assert sentence.startswith("closest to t/r: ")
    failing = sentence.split("fails: ")[1]
    assert condition in failing
    assert ";" not in failing


@pytest.mark.parametrize(
    ("change", "lacking"),
    [
        ({"contested_least_p": 0.03125}, "p cannot fall below 0.031, needs 0.025"),
        ({"contested_low": np.nan}, "lie in too few documents to tell them apart"),
        ({"contested_n": 0.0, "contested_low": np.nan, "contested_least_p": np.nan}, "too few"),
        ({"contested_rule_rate": 1.0}, "another rule has 100% right"),
        ({"contested_rule_rate": 0.91}, "another rule has 91% right"),  # 1.01 cannot be reached
        # 8 of 8 hits say at least 0.68: Wilson 1927
        ({"contested_n": 8.0, "contested_rule_rate": 0.68}, "another rule has 68% right"),
    ],
)
def test_contested_queries_that_cannot_tell_decide_nothing(change, lacking):
    row = CONTESTED | {"contested_n": 22.0, "tagged": False} | change
    assert verdict_of(row) == UNIDENTIFIABLE
    table = with_rules(pd.DataFrame([row | {"verdict": UNIDENTIFIABLE}]), {"t/r": RULE})
    assert lacking in open_in_words(table.iloc[0].to_dict())
    # what another condition refuses stays refused
    for other in ({"mass": 0.1}, {"ci_low": -0.5, "ci_high": -0.1, "lift": -0.3}):
        assert verdict_of(row | other) == NO


FEW = CONTESTED | {"contested_least_p": 0.03125}
"""Contested queries in too few documents for the test."""
SURE = CONTESTED | {"contested_n": 22.0, "contested_least_p": 0.00024}
"""Few contested queries, in documents enough for the test."""
FAST_RULE = CONTESTED | {"contested_rule_rate": 0.5}


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        # the best offset is asked if the test cannot tell and a head could exceed it
        (FEW | {"hit_rate": 0.3}, NO),
        (FEW | {"hit_rate": 0.49}, NARROW),
        (FEW | {"hit_rate": 0.93, "best_offset_rate": 0.93}, UNIDENTIFIABLE),  # 1.03 is too much
        # few queries may all be of one kind, so that the best offset is asked too
        (SURE, TAGGED),
        (SURE | {"hit_rate": 0.41}, NO),
        (SURE | {"hit_rate": 0.93, "best_offset_rate": 0.93}, TAGGED),  # 1.03 is too much
        # a rule that may count or not leaves it open
        (FAST_RULE | {"contested_rule_low": 0.3}, NARROW),
        (FAST_RULE | {"contested_rule_low": 0.5}, NO),
        # what has no interval is not narrow
        (CONTESTED | {"mass": 0.19, "mass_error": np.nan}, NO),
        (CONTESTED | {"n": 49}, NO),
    ],
)
def test_the_verdict_by_few_contested_queries_and_by_intervals(row, verdict):
    assert verdict_of(row) == verdict


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mass": 0.19}, "mass 0.190, floor 0.2, margin -0.010 [-0.030, +0.010]"),
        ({"ci_low": -0.01}, "must lie above 0"),
        ({"control": 0.34}, "margin -0.010 [-0.030, +0.010]"),
        ({"twin_p999": 0.41}, "margin -0.010 [-0.060, +0.040]"),
        ({"rival": 0.27}, "margin -0.005 [-0.025, +0.015]"),
        (
            {"contested_hit_rate": 0.398, "contested_hit_low": 0.31, "contested_hit_high": 0.49},
            "margin -0.002 [-0.090, +0.090]",
        ),
    ],
)
def test_a_margin_whose_interval_holds_0_refuses_narrowly_and_says_how_far(change, sentence):
    row = CONTESTED | change
    assert verdict_of(row) == NARROW
    (said,) = reasons_of(row | {"verdict": NARROW, "tagged": False})
    assert sentence in said.split("; narrowly fails: ")[1]
    # beside a condition that refuses it for sure it is refused
    assert verdict_of(row | {"chance": 0.5}) == NO


def test_a_type_that_no_head_could_earn_is_not_counted():
    def counted(row: dict) -> list[str]:
        return countable_types(pd.DataFrame([row]), {"t/r": RULE})

    assert counted(GOOD) == counted(CONTESTED) == ["t"]
    assert counted(CONTESTED | {"mass": 0.0}) == ["t"]  # measured, and no
    for change in ({"n": 49}, {"ci_low": np.nan}, {"contested_least_p": 0.0625}):
        assert counted(CONTESTED | change) == []
        assert decidable_relations(pd.DataFrame([CONTESTED | change]), {"t/r": RULE}) == {
            "relations": 0,
            "of": 1,
        }
    shown = replace(RULE, taggable=False)
    assert not tagged(GOOD, shown)
    rules = {"t/r": RULE, "t/missing": RULE, "t/shown": shown}
    assert decidable_relations(pd.DataFrame([CONTESTED]), rules) == {"relations": 1, "of": 2}


def test_a_companion_must_clear_the_floor_where_it_was_measured():
    rules = {
        "t/r": TagThresholds(0.2, "s", "m", companion="t/other"),
        "t/other": TagThresholds(0.2, "s", "m", companion="t/r"),
    }
    alone = pd.DataFrame([GOOD])
    assert tag(alone, rules).tolist() == [True]
    weak = pd.DataFrame([GOOD, GOOD | {"relation": "other", "mass": 0.1}])
    assert tag(weak, rules).tolist() == [False, False]
    strong = pd.DataFrame([GOOD, GOOD | {"relation": "other", "mass": 0.3}])
    assert tag(strong, rules).tolist() == [True, True]


def heads_of(rows: list[dict]) -> pd.DataFrame:
    evidence = pd.DataFrame(rows)
    rules = {f"{r['type']}/{r['relation']}": TagThresholds(0.2, "s", "m") for r in rows}
    evidence["tagged"] = tag(evidence, rules)
    evidence["verdict"] = verdicts(evidence, rules)
    profile = evidence[["layer", "head"]].drop_duplicates().assign(
        first_token_mass=0.1, sink_share=np.nan, entropy=1.0, mean_distance=2.0, variability=0.3, shape="mixed"
    )  # fmt: skip
    return head_table(evidence, rules, profile, kv_group_size=2)


def test_the_primary_tag_is_the_largest_lift_and_the_sink_comes_last():
    sink = GOOD | {"type": "sink", "relation": "first-token", "lift": 0.9, "mass": 0.9}
    syntax = GOOD | {"type": "syntactic", "relation": "obj:dep>head", "lift": 0.3}
    induction = GOOD | {"type": "induction", "relation": "repeat", "lift": 0.4}
    (head,) = heads_of([sink, syntax, induction]).to_dict("records")
    assert (head["primary"], head["relation"]) == ("induction", "repeat")
    assert set(head["tags"].split(";")) == {"sink", "syntactic", "induction"}
    (head,) = heads_of([sink, syntax | {"mass": 0.1}]).to_dict("records")
    assert (head["primary"], head["tags"]) == ("sink", "sink")


def test_a_head_without_a_tag_is_unclassified_and_says_what_came_closest():
    near = GOOD | {"mass": 0.15, "head": 3}
    far = GOOD | {"relation": "far", "mass": 0.01, "q_value": 0.5, "head": 3}
    (head,) = heads_of([far, near]).to_dict("records")
    assert (head["primary"], head["tags"], head["relation"]) == ("unclassified", "", "r")
    assert head["reason"].startswith("closest to t/r")
    assert head["kv_group"] == 1


def tag_count(run: hs.Run, factor: float, *, sinks: bool) -> int:
    rules = {name: replace(rule, floor=rule.floor * factor) for name, rule in run.rules.items()}
    rows = run.evidence[(verdicts(run.evidence, rules) == TAGGED).to_numpy()]
    rows = rows[(rows["type"] == "sink") == sinks]
    return len(rows.drop_duplicates(["layer", "head", "type"]))


def test_the_sentence_counts_the_tags_of_higher_and_lower_floors():
    run = hs.load("atlas:mini")
    parts = []
    for noun, sinks in (("tags", False), ("tags of attention sinks", True)):
        more, now, fewer = (tag_count(run, factor, sinks=sinks) for factor in (0.9, 1.0, 1.1))
        parts.append(
            f"floors 10 % higher take {now - fewer} of {now} {noun} away, "
            f"floors 10 % lower add {more - now}"
        )
    assert floor_sensitivity(run.evidence, run.rules) == f"{'; '.join(parts).capitalize()}."
    assert floor_sensitivity(run.evidence.head(0), run.rules) == ""
