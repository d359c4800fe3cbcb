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
from headscope.relations.relation import Relation, Threshold
from headscope.statistics.conditions import (
    FEWEST_WRONG,
    ON_THIS_TEXT,
    SURFACE,
    failures,
    open_in_words,
    undecided_in_words,
)
from headscope.statistics.estimates import weigh
from headscope.statistics.head_lists import undecided
from headscope.statistics.head_table import head_table
from headscope.statistics.in_words import reasons
from headscope.statistics.result import by_name
from headscope.statistics.tag_counts import TagCounts, tag_counts
from headscope.statistics.tags import (
    INCONCLUSIVE,
    NO,
    TAGGED,
    UNIDENTIFIABLE,
    countable_types,
    decidable_relations,
    is_undecided,
    verdicts,
    with_thresholds,
    with_verdicts,
)
from headscope.views.head_account import explain_tags
from headscope.views.report.wording import threshold_sensitivity

NAMES = ("a/one", "a/two")
RELATIONS = [
    Relation(
        "a",
        name,
        pairs=no_tokens,
        control=no_tokens,
        thresholds=Threshold(0.1, "a source", f"thing {name}"),
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
    assert np.isnan(row["hard_n"])  # this relation has no baseline


def test_too_few_blocks_give_no_interval_and_no_q_value():
    evidence = weigh(simulated(0.3, 3, np.random.default_rng(0), blocks=7), RELATIONS, seed=0)
    assert evidence[["ci_low", "ci_high", "q_value"]].isna().all(axis=None)
    thresholds = {relation.id: relation.thresholds for relation in RELATIONS}
    assert (verdicts(with_thresholds(evidence, thresholds)) == UNIDENTIFIABLE).all()
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
    "layer": 0,
    "head": 0,
    "type": "t",
    "relation": "r",
    "n": 500,
    "mass": 0.5,
    "control": 0.1,
    "lift": 0.4,
    "ci_low": 0.35,
    "ci_high": 0.45,
    "q_value": 1e-9,
    "hit_rate": 0.6,
    "chance": 0.05,
    "mass_error": 0.02,
    "control_error": 0.02,
}
RULE = Threshold(0.2, "a source", "what it is about", times_chance=3.0, beat_baseline_by=0.1)


HARD = GOOD | {
    "baseline": "nearest-VERB",
    "hard_n": 80.0,
    "hard_rate": 0.5,
    "hard_low": 0.42,
    "hard_high": 0.58,
    "easy_rate": 0.9,
    "hard_baseline_rate": 0.3,
    "matched_control": 0.1,
}


def tag(evidence: pd.DataFrame, thresholds: dict) -> pd.Series:
    return verdicts(with_thresholds(evidence, thresholds)) == TAGGED


def verdict_of(row: dict, limits: Threshold = RULE) -> str:
    (verdict,) = verdicts(with_thresholds(pd.DataFrame([row]), {"t/r": limits}))
    return verdict


def tagged(row: dict, limits: Threshold = RULE) -> bool:
    return verdict_of(row, limits) == TAGGED


def failures_of(row: dict) -> list[str]:
    failed = failures(with_thresholds(pd.DataFrame([row]), {"t/r": RULE})).iloc[0]
    return failed.index[failed].tolist()


def reasons_of(row: dict) -> list[str]:
    return reasons(with_thresholds(pd.DataFrame([row]), {"t/r": RULE}))


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        ({"n": 49}, "49 queries, needs 50"),
        ({"mass": 0.19}, "mass 0.190, threshold 0.2"),
        ({"q_value": 0.01}, "q 0.01, must be below 0.01"),
        ({"q_value": np.nan}, "must be below 0.01"),
        ({"lift": -0.1}, "lift -0.100"),
        ({"control": 0.35}, "mass 0.500, 1.5 × 0.350 on control keys"),
        ({"matched_control": 0.4}, "1.5 × 0.400 on other keys (matched)"),
        ({"chance": 0.2}, "1.5 × 0.400 on the same keys by evenly spread attention, × 2"),
        (
            {"hard_low": 0.4},
            "preference 0.50 [0.400, 0.580] at 80 queries where “nearest verb” is wrong",
        ),
        ({"hard_baseline_rate": 0.35}, "baselines 0.35 + 0.10"),
        (
            {
                "beyond_surrogate": 0.19,
                "beyond_low": 0.1,
                "beyond_high": 0.195,
                "surrogate_wrong": 30,
            },
            "0.19 [0.100, 0.195] of 30 queries where its surrogate is wrong",
        ),
        (
            {"top_rate": 0.19, "top_low": 0.1, "top_high": 0.195},
            "tokens but sinks at 0.19 [0.100, 0.195] of 80 hard queries, needs 0.2",
        ),
    ],
)
def test_every_condition_alone_prevents_a_tag_and_says_so(change, condition):
    assert tagged(HARD)
    assert not tagged(HARD | change)
    (sentence,) = reasons_of(HARD | change | {"tagged": False})
    assert sentence.startswith("closest to t/r: ")
    failing = sentence.split("fails: ")[1]
    assert condition in failing
    assert len(failures_of(HARD | change)) == 1


@pytest.mark.parametrize(
    ("change", "lacking"),
    [
        ({"hard_n": 9.0}, "9 hard queries, where “nearest verb” is wrong; needs 10"),
        ({"hard_low": np.nan}, "in too few documents for an interval"),
        ({"hard_n": 0.0, "hard_low": np.nan, "hard_rate": np.nan}, "0 hard queries"),
        # 80 of 80 preferred targets say at least 0.954: Wilson 1927
        ({"hard_baseline_rate": 0.86}, "baselines reach a mean preference of 0.86"),
    ],
)
def test_hard_queries_that_cannot_distinguish_decide_nothing(change, lacking):
    row = HARD | {"tagged": False} | change
    assert verdict_of(row) == UNIDENTIFIABLE
    table = with_thresholds(pd.DataFrame([row | {"verdict": UNIDENTIFIABLE}]), {"t/r": RULE})
    assert lacking in open_in_words(table.iloc[0].to_dict())
    # another condition rejects the head all the same
    for other in ({"mass": 0.1}, {"ci_low": -0.5, "ci_high": -0.1, "lift": -0.3}):
        assert verdict_of(row | other) == NO


@pytest.mark.parametrize("wrong", [0.0, 4.0])
def test_a_surrogate_that_is_wrong_too_rarely_decides_nothing(wrong):
    columns = ("beyond_surrogate", "beyond_low", "beyond_high")
    row = HARD | {"surrogate_wrong": wrong, "tagged": False} | dict.fromkeys(columns, np.nan)
    assert verdict_of(row) == UNIDENTIFIABLE
    (sentence,) = reasons_of(row | {"verdict": UNIDENTIFIABLE})
    assert SURFACE in sentence
    table = with_thresholds(pd.DataFrame([row | {"verdict": UNIDENTIFIABLE}]), {"t/r": RULE})
    lacking = undecided_in_words(table.iloc[0].to_dict())
    assert f"needs {FEWEST_WRONG}" in lacking
    # the condition's own words are the same, since it has no rate to state
    (surrogate,) = (each for each in ON_THIS_TEXT if each.name == "surrogate")
    assert surrogate.describe(table.iloc[0].to_dict()) == lacking
    assert is_undecided(table).all()
    # another condition that cannot be decided decides as little, and another that fails rejects
    assert verdict_of(row | {"hard_n": 9.0}) == UNIDENTIFIABLE
    assert verdict_of(row | {"mass": 0.19}) == INCONCLUSIVE
    assert verdict_of(row | {"mass": 0.1}) == NO
    # enough queries decide, and a head that no surrogate was fitted for is not asked
    decided = {"beyond_surrogate": 0.6, "beyond_low": 0.55, "beyond_high": 0.7}
    assert verdict_of(row | decided | {"surrogate_wrong": 5.0}) == TAGGED
    assert verdict_of(row | {"surrogate_wrong": np.nan}) == TAGGED


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mass": 0.19}, "mass 0.190, threshold 0.2, margin -0.010 [-0.030, +0.010]"),
        ({"q_value": 0.02}, "q 0.02, must be below 0.01"),
        ({"control": 0.34}, "margin -0.010 [-0.030, +0.010]"),
        ({"matched_control": 0.34}, "margin -0.010 [-0.030, +0.010]"),
        (
            {"hard_rate": 0.38, "hard_low": 0.29, "hard_high": 0.47},
            "preference 0.38 [0.290, 0.470]",
        ),
    ],
)
def test_a_margin_whose_interval_includes_0_is_inconclusive(change, sentence):
    row = HARD | change
    assert verdict_of(row) == INCONCLUSIVE
    (said,) = reasons_of(row | {"verdict": INCONCLUSIVE, "tagged": False})
    assert sentence in said.split(f"; {INCONCLUSIVE}: ")[1]
    # another condition rejects it, or has no interval
    assert verdict_of(row | {"chance": 0.5}) == NO
    assert verdict_of(row | {"n": 49}) == NO


NO_INTERVAL = (
    GOOD
    | {"n": 60, "baseline": "", "ci_low": np.nan, "ci_high": np.nan, "q_value": np.nan}
    | dict.fromkeys(("mass_error", "control_error"), np.nan)
)


def test_without_an_interval_no_head_is_rejected_and_only_a_near_one_is_listed():
    away = {"mass": 0.01, "control": 0.1, "lift": -0.09, "hit_rate": 0.0}
    rows = [NO_INTERVAL, NO_INTERVAL | away | {"head": 1}]
    far = [GOOD | away | {"relation": "other", "head": head} for head in (0, 1)]
    thresholds = {"t/r": Threshold(0.2, "s", "m"), "t/other": Threshold(0.2, "s", "m")}
    evidence = with_thresholds(pd.DataFrame([*rows, *far]), thresholds)
    assert verdicts(evidence).tolist() == [UNIDENTIFIABLE, UNIDENTIFIABLE, NO, NO]
    heads = heads_of([*rows, *far])
    assert heads["primary"].tolist() == [UNIDENTIFIABLE, "unclassified"]
    assert "8 blocks" in heads["reason"].iloc[0]
    evidence["verdict"], evidence["tagged"] = verdicts(evidence), False
    (listed,) = undecided(by_name(heads), evidence).to_dict("records")
    assert (listed["head"], listed["description"]) == (0, "r, or chance")
    assert "8 blocks" in listed["why"]
    assert [UNIDENTIFIABLE in explain_tags(evidence, thresholds, 0, head) for head in (0, 1)] == [
        True,
        False,
    ]


def test_a_type_that_no_head_could_earn_is_not_counted():
    def counted(row: dict) -> list[str]:
        return countable_types(with_thresholds(pd.DataFrame([row]), {"t/r": RULE}))

    assert counted(HARD) == ["t"]
    assert counted(HARD | {"mass": 0.0}) == ["t"]  # measured, and no
    for change in ({"n": 49}, {"ci_low": np.nan}, {"hard_n": 9.0}):
        assert counted(HARD | change) == []
        table = with_thresholds(pd.DataFrame([HARD | change]), {"t/r": RULE})
        assert decidable_relations(table, {"t/r": RULE}) == {"relations": 0, "of": 1}
    shown = replace(RULE, taggable=False)
    assert not tagged(GOOD, shown)
    thresholds = {"t/r": RULE, "t/missing": RULE, "t/shown": shown}
    table = with_thresholds(pd.DataFrame([HARD]), thresholds)
    assert decidable_relations(table, thresholds) == {"relations": 1, "of": 2}


def test_a_paired_relation_must_reach_the_threshold_where_it_was_measured():
    thresholds = {
        "t/r": Threshold(0.2, "s", "m", paired_relation="t/other"),
        "t/other": Threshold(0.2, "s", "m", paired_relation="t/r"),
    }
    alone = pd.DataFrame([GOOD])
    assert tag(alone, thresholds).tolist() == [True]
    weak = pd.DataFrame([GOOD, GOOD | {"relation": "other", "mass": 0.1}])
    assert tag(weak, thresholds).tolist() == [False, False]
    strong = pd.DataFrame([GOOD, GOOD | {"relation": "other", "mass": 0.3}])
    assert tag(strong, thresholds).tolist() == [True, True]


def heads_of(rows: list[dict]) -> pd.DataFrame:
    thresholds = {f"{r['type']}/{r['relation']}": Threshold(0.2, "s", "m") for r in rows}
    evidence = with_thresholds(pd.DataFrame(rows), thresholds)
    evidence["verdict"] = verdicts(evidence)
    evidence["tagged"] = evidence["verdict"] == TAGGED
    profile = (
        evidence[["layer", "head"]]
        .drop_duplicates()
        .assign(
            first_token_mass=0.1,
            sink_share=np.nan,
            entropy=1.0,
            mean_distance=2.0,
            variability=0.3,
            shape="mixed",
        )
    )
    return head_table(evidence, profile, kv_group_size=2)


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
    thresholds = {
        name: replace(limits, threshold=limits.threshold * factor)
        for name, limits in run.thresholds.items()
    }
    table = with_verdicts(with_thresholds(run.evidence, thresholds))
    rows = table[table["tagged"] & ((table["type"] == "sink") == sinks)]
    return len(rows.drop_duplicates(["layer", "head", "type"]))


def test_tags_are_counted_at_higher_and_lower_thresholds():
    run = hs.load("atlas:mini")
    counted = tag_counts(run.evidence_with_thresholds)
    for noun, sinks in (("tags", False), ("tags of attention sinks", True)):
        lower, now, higher = (tag_count(run, factor, sinks=sinks) for factor in (0.9, 1.0, 1.1))
        assert counted[noun] == TagCounts(lower=lower, now=now, higher=higher)
    sentence = threshold_sensitivity(counted)
    assert f"of {counted['tags'].now} tags" in sentence
    assert threshold_sensitivity(tag_counts(run.evidence_with_thresholds.head(0))) == ""
