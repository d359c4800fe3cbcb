"""The probability that another text gives a tag again."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import headscope as hs
from headscope.relations.relation import Threshold
from headscope.runs.listing import list_heads
from headscope.statistics.conditions import LEAST_REPLICATES, MAX_Q
from headscope.statistics.in_words import reasons
from headscope.statistics.replication import COMMON, NOISE, replicates
from headscope.statistics.tags import (
    INCONCLUSIVE,
    NO,
    TAGGED,
    UNIDENTIFIABLE,
    with_thresholds,
    with_verdicts,
)

RULE = Threshold(0.2, "a source", "its target", beat_baseline_by=0.05, surrogate_share=0.2)
SURE = {
    "layer": 0,
    "head": 0,
    "type": "t",
    "relation": "r",
    "n": 100_000,
    "mass": 0.9,
    "mass_error": 1e-6,
    "control": 0.0,
    "control_error": 1e-6,
    "lift": 0.9,
    "ci_low": 0.89,
    "ci_high": 0.91,
    "q_value": 0.0,
    "baseline": "nearest-VERB",
    "hard_n": 100_000,
    "hard_rate": 0.9,
    "hard_low": 0.89,
    "hard_high": 0.91,
    "hard_baseline_rate": 0.1,
    "beyond_surrogate": 0.9,
    "beyond_low": 0.89,
    "beyond_high": 0.91,
}
"""Numbers far above every threshold."""


def probability(**change: float) -> float:
    table = with_thresholds(pd.DataFrame([SURE | change]), {"t/r": RULE})
    return float(replicates(table)[0])


def again(distance: float, half_width: float) -> float:
    """Share of differences of two texts, each with this error, that are below the distance."""
    error = NOISE * half_width / 1.96
    return float(norm.cdf(distance, scale=np.hypot(error, error)))


@pytest.mark.parametrize(
    ("change", "distance", "half_width"),
    [
        ({"mass": 0.25, "mass_error": 0.1}, 0.05, 0.1),
        ({"mass": 0.17, "mass_error": 0.1}, -0.03, 0.1),
        ({"control": 0.55, "control_error": 0.2}, 0.9 - 1.5 * 0.55, 0.2),
        # the lower end must lie above the baselines' rate + 0.05
        ({"hard_rate": 0.4, "hard_low": 0.2, "hard_high": 0.6}, 0.2 - 0.15, 0.2),
        ({"beyond_surrogate": 0.3, "beyond_low": 0.2, "beyond_high": 0.4}, 0.1, 0.1),
        ({"hard_n": 14}, 4, 1.96 * np.sqrt(14)),
        ({"q_value": 0.001}, norm.ppf(MAX_Q) - norm.ppf(0.001), 1.96),
    ],
)
def test_one_condition_near_its_threshold_decides(change, distance, half_width):
    assert probability() == pytest.approx(1, abs=1e-6)
    assert probability(**change) == pytest.approx(again(distance, half_width), abs=1e-4)


def test_two_conditions_lie_between_the_weaker_and_the_product():
    mass = probability(mass=0.25, mass_error=0.1)
    surrogate = probability(beyond_surrogate=0.22, beyond_low=0.1, beyond_high=0.34)
    combined = probability(
        mass=0.25, mass_error=0.1, beyond_surrogate=0.22, beyond_low=0.1, beyond_high=0.34
    )
    weaker = min(mass, surrogate)
    assert mass * surrogate < combined < weaker
    by_hand = weaker**COMMON * (mass * surrogate) ** (1 - COMMON)
    assert combined == pytest.approx(by_hand, rel=1e-4)


def test_it_is_not_known_without_an_interval_and_absent_conditions_do_not_count():
    assert np.isnan(probability(ci_low=np.nan, ci_high=np.nan))
    nothing = dict.fromkeys(("beyond_surrogate", "beyond_low", "beyond_high"), np.nan)
    assert probability(**nothing) == pytest.approx(1, abs=1e-6)


def test_a_tag_that_another_text_would_more_likely_not_give_is_inconclusive():
    near_mass = {"mass": 0.205, "mass_error": 0.1}
    near_surrogate = {"beyond_surrogate": 0.21, "beyond_low": 0.01, "beyond_high": 0.41}

    def judged(**change: float) -> pd.Series:
        table = with_thresholds(pd.DataFrame([SURE | change]), {"t/r": RULE})
        row = with_verdicts(table).iloc[0]
        assert row["tagged"] == (row["verdict"] == TAGGED)
        return row

    # either condition alone comes again more often than not, the two together do not
    assert judged(**near_mass)["verdict"] == TAGGED
    assert judged(**near_surrogate)["verdict"] == TAGGED
    row = judged(**near_mass, **near_surrogate)
    assert row["verdict"] == INCONCLUSIVE
    (reason,) = reasons(pd.DataFrame([row]))
    assert f"probability {row['replicates']:.2f}, needs {LEAST_REPLICATES:g}" in reason
    # what this text rejects stays rejected, and what it cannot decide is open
    assert judged(**near_surrogate, mass=0.01, mass_error=0.001)["verdict"] == NO
    assert judged(**near_mass, **near_surrogate, hard_n=9)["verdict"] == UNIDENTIFIABLE


def test_the_verdict_by_the_text_alone_asks_what_another_text_would_give():
    of_text = {"text_hard_n": 40, "text_hard_rate": 0.4, "text_hard_low": 0.16}
    of_text |= {"text_hard_high": 0.64, "text_hard_baseline_rate": 0.1}
    table = with_thresholds(pd.DataFrame([SURE | of_text]), {"t/r": RULE})
    assert with_verdicts(table)["text_verdict"].tolist() == [TAGGED]
    # beside it the mass is near its threshold, which leaves the tag alone as long as one is sure
    near = {"mass": 0.205, "mass_error": 0.1}
    table = with_thresholds(pd.DataFrame([SURE | of_text | near]), {"t/r": RULE})
    row = with_verdicts(table).iloc[0]
    assert (row["verdict"], row["text_verdict"]) == (TAGGED, INCONCLUSIVE)


def test_heads_are_chosen_by_it_and_shown_with_it(mini_run):
    run = hs.load(mini_run)
    tags = run.evidence[run.evidence["verdict"] == TAGGED]
    assert tags["replicates"].between(0, 1).all()
    least = float(run.heads["replicates"].median())
    listed = list_heads(run, replicates=least)
    assert 0 < len(listed) < len(run.heads)
    assert (listed["replicates"] >= least).all()
    assert (listed["tags"] != "").all()


def test_runs_of_an_earlier_version_have_it_too():
    run = hs.load("atlas:mini")
    tags = run.evidence[run.evidence["tagged"]]
    assert tags["replicates"].between(0, 1).all()
    assert run.heads["replicates"].notna().any()
