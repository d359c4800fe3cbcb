"""Effects weighed: lifts, intervals, conditions, and the direction that is asked for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headscope.measure.tally import BLOCKS, Tally
from headscope.relations.effects import EFFECTS, Effect, no_tokens, sum_names
from headscope.relations.relation import Relation, Threshold
from headscope.statistics.estimates import weigh
from headscope.statistics.judge_heads import RunSums, effect_records, with_direct_effects
from headscope.statistics.tags import with_thresholds
from headscope.views.head_account import direct_effect_lines

NAMES = sum_names(EFFECTS)
COPY, SECOND = NAMES.index("writes/copy/looked-at"), NAMES.index("writes/copy/looked-at/matched")
SUPPRESS = NAMES.index("writes/suppress/looked-at")
SUPPRESS_SECOND = NAMES.index("writes/suppress/looked-at/matched")
INDUCTION = NAMES.index("writes/induction/repeat")


def tally_of(lift: list[float], second: list[float], *, spread: float = 0.1) -> Tally:
    """One layer's heads with these mean lifts over both controls, four queries in each block."""
    tally = Tally.zeros(tuple(NAMES), 1, len(lift))
    rng, each = np.random.default_rng(0), 4
    for index, other in ((COPY, SECOND), (SUPPRESS, SUPPRESS_SECOND)):
        noise = rng.normal(0, 0.2, (BLOCKS, 1, len(lift)))
        for row, mean in ((index, lift), (other, second)):
            tally.hits[:, row] = each
            tally.queries[:, row] = each
            tally.target[:, row] = each * (2.0 + np.array(lift) + noise)
            tally.control[:, row] = tally.target[:, row] - each * (np.array(mean) + noise)
        tally.target[:, other] = each * spread
    return tally


def table_of(tally: Tally, **how) -> pd.DataFrame:
    table = RunSums(tally, seed=0, **how).effects(EFFECTS)
    return table.set_index(["type", "effect", "head"])


def test_a_head_over_the_threshold_on_both_controls_is_tagged_with_its_numbers():
    table = table_of(tally_of([1.0, 0.2, 1.0], [0.8, 0.2, 0.0]))
    row = table.loc[("copy", "looked-at", 0)]
    assert row["lift"] == pytest.approx(1.0, abs=0.1)
    assert row["on"] - row["control"] == pytest.approx(row["lift"])
    assert row["ci_low"] < row["lift"] < row["ci_high"]
    assert row["n"] == 4 * BLOCKS
    assert table.loc["copy"]["tagged"].tolist() == [True, False, False]
    assert row["replicates"] > 0.9
    table = table_of(tally_of([1.0, -1.0], [1.0, -0.9]))  # suppression is the same below 0
    assert table.loc["copy"]["tagged"].tolist() == [True, False]
    assert table.loc[("suppress", "looked-at")]["tagged"].tolist() == [False, True]
    assert table.loc[("suppress", "looked-at", 1), "q_value"] < 1e-6


def test_an_interval_of_an_effect_that_must_lower_is_turned_round_with_its_ends():
    """−2 within [−3, −0.5] is 2 within [0.5, 3] downwards; a head that must raise keeps it."""
    row = {"type": "writes", "layer": 0, "head": 0, "lift": -2.0, "mass": 0.0, "mass_error": 0.0}
    for low, high in (("ci_low", "ci_high"), ("second_low", "second_high")):
        row |= {low: -3.0, high: -0.5}
    row |= {"moved_low": -4.0, "moved_high": -0.25, "second_lift": -1.0, "moved": -1.5}
    table = pd.DataFrame([row | {"relation": "down"}, row | {"relation": "up"}])
    limits = {f"writes/{n}": Threshold(1.0, "", sign=s) for n, s in (("down", -1), ("up", 1))}
    down, up = with_thresholds(table, limits).to_dict("records")
    ends = ("lift", "ci_low", "ci_high", "second_low", "second_high", "moved_low", "moved_high")
    assert [down[name] for name in ends] == [2.0, 0.5, 3.0, 0.5, 3.0, 0.25, 4.0]
    assert [up[name] for name in ends] == [row[name] for name in ends]


def test_a_tag_must_stand_out_of_the_heads_effects_on_any_token():
    assert not table_of(tally_of([1.0], [1.0], spread=3.0))["tagged"].any()
    assert table_of(tally_of([1.0], [1.0])).loc[("copy", "looked-at", 0), "tagged"]


def test_a_share_is_of_all_heads():
    tally = Tally.zeros(tuple(NAMES), 1, 2)
    tally.hits[:, INDUCTION] = tally.queries[:, INDUCTION, None, None] = 3
    tally.target[:, INDUCTION] = 3 * np.array([3.0, 1.0])
    table = table_of(tally)
    assert table.loc[("induction", "repeat")]["share"].tolist() == [0.75, 0.25]
    # heads that cancel leave little to be a share of
    tally.target[:, INDUCTION] = 3 * np.array([3.0, -1.0])
    assert table_of(tally).loc[("induction", "repeat")]["share"].tolist() == [0.75, -0.25]


def test_a_second_control_of_named_tokens_can_refuse_a_tag():
    second = NAMES.index("writes/induction/repeat/matched")
    tally, noise = Tally.zeros(tuple(NAMES), 1, 2), np.random.default_rng(0).normal(0, 0.1, BLOCKS)
    for row in (INDUCTION, second):
        tally.hits[:, row] = tally.queries[:, row, None, None] = 3
    tally.target[:, INDUCTION] = 3 * (2 + noise[:, None, None])
    tally.control[:, INDUCTION] = 3.0
    # the second head raises what stands nowhere in the text as much
    tally.control[:, second] = 3 * np.array([0.0, 2.0])
    table = table_of(tally).loc[("induction", "repeat")]
    assert table["lift"].tolist() == pytest.approx([1, 1], abs=0.1)
    assert table["second_lift"].tolist() == pytest.approx([2, 0], abs=0.1)
    assert table["tagged"].tolist() == [True, False]
    assert table["spread"].isna().all()
    assert (table["n"] == 3 * BLOCKS).all()


def test_more_interim_tests_make_q_values_larger():
    tally = tally_of([0.02], [0.0])
    once, thrice = (table_of(tally, interim_tests=tests)["q_value"] for tests in (1, 3))
    assert (once < 1 / 3).any()
    assert thrice.to_numpy() == pytest.approx(np.minimum(1, 3 * once.to_numpy()))


def test_what_heads_write_stands_beside_them_and_in_words():
    tally = tally_of([1.0, 0.3, 0.0], [0.8, 0.3, 0.0])
    table = RunSums(tally, seed=0).effects(EFFECTS)
    heads = with_direct_effects(pd.DataFrame({"layer": [0, 0, 0], "head": [0, 1, 2]}), table)
    assert heads["direct_effects"].tolist() == ["copy", "", ""]
    assert heads["direct_effect_lift"].isna().tolist() == [False, True, True]
    facts = effect_records(EFFECTS)
    assert "it raises the token that it attends to: +" in direct_effect_lines(table, facts, 0, 0)[0]
    assert direct_effect_lines(table, facts, 0, 1)[0].startswith("no tag: copy/looked-at")


def test_the_same_sums_are_weighed_alike_as_attention_and_as_logits():
    limits, rng = Threshold(0.0, "a source", "a thing"), np.random.default_rng(3)
    relation = Relation("a", "one", no_tokens, no_tokens, limits)
    effect = Effect("a", "one", thresholds=Threshold(0.0, "a source", "does a thing", sign=1))
    tally = Tally.zeros((relation.id, effect.id), 2, 5)
    tally.queries[:] = rng.integers(1, 9, (BLOCKS, 1))
    tally.hits[:] = tally.queries[..., None, None]
    tally.target[:] = rng.random((BLOCKS, 1, 2, 5)) * tally.hits
    tally.control[:] = rng.random((BLOCKS, 1, 2, 5)) * tally.hits * 0.9
    attention, logits = (weigh(tally, [row], seed=0) for row in (relation, effect))
    same = ["layer", "head", "n", "mass", "control", "lift", "ci_low", "ci_high", "q_value"]
    for column in (*same, "p_value"):
        assert logits[column].to_numpy() == pytest.approx(attention[column].to_numpy(), rel=1e-4)
