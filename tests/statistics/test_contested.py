"""Verdicts at few contested queries: of heads that know, of habits, and of text that cannot say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headscope.measure.tally import BLOCKS, Tally
from headscope.relations import relations_of
from headscope.relations.relation import NATURAL, part_name
from headscope.statistics.judge_heads import Judging

(OBJECT,) = (each for each in relations_of(["syntactic"]) if each.name == "obj:dep>head")
FACTS = {
    OBJECT.id: {
        "baseline": "nearest-VERB",
        "baseline_rate": 0.95,
        "best_offset_rate": 0.4,
        "contested_queries": 22,
        "natural_rules": [[0.95, 0.0], [0.5, 0.3]],
    }
}
NARROW = "narrowly refused"
"""Verdict on a hit rate of 30 % at 22 queries: it may be 40 %, the rule's rate plus the margin."""
PERFECT, HABIT, OTHER_HABIT, NOTHING = range(4)


def tally_of(contested: list[int]) -> Tally:
    """Ten queries in every block, of which some are contested in the first blocks."""
    names = (OBJECT.id, part_name(OBJECT.id, NATURAL))
    tally = Tally.zeros(names, 1, 4)
    tally.queries[:, 0] = 10
    tally.queries[: len(contested), 1] = contested
    n, few = tally.queries[:, 0, None], tally.queries[:, 1, None]
    noise = np.random.default_rng(0).uniform(0.95, 1, (BLOCKS, 4))
    tally.target[:, 0, 0] = n * noise * [0.6, 0.6, 0.3, 0.02]
    tally.control[:, 0, 0] = n * noise * [0.01, 0.02, 0.02, 0.02]
    tally.hits[:, 0, 0] = n * [1.0, 0.95, 0.5, 0.05]
    # where "the nearest verb" is wrong, the habit looks there; the other has 30 % right
    tally.target[:, 1, 0] = few * noise * [0.6, 0.01, 0.2, 0.02]
    tally.control[:, 1, 0] = few * noise * [0.01, 0.6, 0.05, 0.02]
    tally.hits[:, 1, 0] = few * [1.0, 0.0, 0.3, 0.05]
    return tally


def evidence_of(contested: list[int], tests: int = 1) -> pd.DataFrame:
    evidence, _ = Judging(tally_of(contested), 0, FACTS, None, tests).relations([OBJECT])
    return evidence.set_index("head")


def test_22_contested_queries_in_14_documents_tell_a_perfect_head_from_habits():
    evidence = evidence_of([2] * 8 + [1] * 6)
    assert evidence.at[PERFECT, "contested_n"] == 22
    verdicts = evidence["verdict"].to_dict()
    assert verdicts == {PERFECT: "tagged", HABIT: "no", OTHER_HABIT: NARROW, NOTHING: "no"}
    # all blocks lie on one side: of 2¹² changes one leaves as much
    assert evidence.at[PERFECT, "contested_p"] == pytest.approx(2**-12)
    assert evidence.at[HABIT, "contested_p"] == 1


@pytest.mark.parametrize(("spread", "low"), [(0.01, 0.3), (0.3, 0.0)])
def test_a_rule_counts_at_most_where_the_noise_of_the_hit_rate_leaves_it(spread, low):
    tally = tally_of([2] * 8 + [1] * 6)
    # 0.58 right over all queries, where the rule with 0.5 counts up to 0.6
    tally.hits[:, 0, 0, OTHER_HABIT] = 10 * np.linspace(0.58 - spread, 0.58 + spread, BLOCKS)
    evidence, _ = Judging(tally, 0, FACTS, None, 1).relations([OBJECT])
    row = evidence.set_index("head").loc[OTHER_HABIT]
    assert row["contested_rule_rate"] == 0.3
    assert (row["hit_rate"] + row["hit_error"] < 0.6) == (low == 0.3)
    assert row["contested_rule_low"] == low


def test_as_many_in_seven_documents_say_nothing_of_a_perfect_head():
    evidence = evidence_of([4] * 3 + [3, 3, 2, 2])
    assert evidence.at[PERFECT, "contested_n"] == 22
    assert evidence.at[PERFECT, "contested_least_p"] == 2**-7
    verdicts = evidence["verdict"].to_dict()
    assert verdicts[PERFECT] == verdicts[HABIT] == "not identifiable"
    assert verdicts[NOTHING] == "no"


def test_a_run_that_asked_several_times_whether_to_read_on_must_be_surer():
    once, often = (evidence_of([2] * 8, tests).loc[PERFECT] for tests in (1, 8))
    assert (once["verdict"], often["verdict"]) == ("tagged", "not identifiable")
    assert once["contested_least_p"] == 2**-8
    assert often["contested_least_p"] == 8 * 2**-8
