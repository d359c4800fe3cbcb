"""Agreement of the tags of two halves of the documents."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headscope.measure.tally import BLOCKS, Tally
from headscope.relations.effects import no_tokens
from headscope.relations.relation import Relation, Threshold
from headscope.statistics.judge_heads import Judging, confirmed, split_half_agreement

ONE = Relation(
    "a",
    "one",
    pairs=no_tokens,
    control=no_tokens,
    thresholds=Threshold(0.1, "a source", "a thing"),
)


def tally_of(odd_lift: float) -> Tally:
    """Head 0 looks at its targets in every block, head 1 in even ones, head 2 never."""
    tally = Tally.zeros(("a/one",), 1, 3)
    tally.queries[:] = 30
    noise = np.random.default_rng(0).normal(0, 0.01, (BLOCKS, 3))
    mass = np.full((BLOCKS, 3), [0.5, 0.5, 0.0])
    mass[1::2, 1] = odd_lift
    tally.target[:, 0, 0] = 30 * (mass + noise)
    return tally


def test_a_tag_is_confirmed_when_both_halves_give_it():
    halves = Judging(tally_of(odd_lift=0.0), seed=0).tags_of_halves([ONE])
    assert halves["first"].tolist() == [True, True, False]
    assert halves["second"].tolist() == [True, False, False]
    evidence = halves[["layer", "head", "type", "relation"]].assign(tagged=[True, True, False])
    found = confirmed(evidence, halves)
    assert found[:2].tolist() == [1, 0]
    assert np.isnan(found[2])


def test_agreement_is_cohen_s_kappa_of_the_tags():
    both = split_half_agreement(Judging(tally_of(odd_lift=0.5), seed=0).tags_of_halves([ONE]))
    assert both == {"a/one": 1.0}
    # one of three heads differs: 2/3 agree, (2/3 · 1/3 + 1/3 · 2/3) would by chance
    half = split_half_agreement(Judging(tally_of(odd_lift=0.0), seed=0).tags_of_halves([ONE]))
    assert half["a/one"] == pytest.approx((2 / 3 - 4 / 9) / (1 - 4 / 9), abs=1e-4)


def test_what_a_half_cannot_say_is_left_out():
    tally = tally_of(odd_lift=0.5)
    tally.queries[1::2] = 0
    tally.target[1::2] = 0
    halves = Judging(tally, seed=0).tags_of_halves([ONE])
    assert halves.empty
    evidence = pd.DataFrame(
        {"layer": [0], "head": [0], "type": ["a"], "relation": ["one"], "tagged": [True]}
    )
    assert confirmed(evidence, halves).isna().all()
    assert split_half_agreement(halves) == {}
