"""Whether an order of heads is a guide, on losses that are made by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headscope.measure.study_windows import TextLoss
from headscope.studies.prune.prune_result import (
    IMPORTANCE,
    OVER_RANDOM,
    RANDOM,
    TYPE,
    conclusions,
    order_summary,
    over_random,
)

SHARES = (0.0, 0.5, 0.9, 1.0)
TOKENS = np.array([10, 20, 30, 40])


def losses(per_token: np.ndarray, tokens: np.ndarray = TOKENS) -> list[TextLoss]:
    """A loss for each share, the same in every window."""
    return [TextLoss(value * tokens, tokens) for value in per_token]


def told(order: list[float], draws: list[list[float]], tokens: np.ndarray = TOKENS) -> str:
    """The sentence about an order that costs so much at 50 % and 90 %, as random ones do."""
    made = {(IMPORTANCE, 0): losses(np.array([0, *order, 3]), tokens)}
    made |= {(RANDOM, i): losses(np.array([0, *each, 3]), tokens) for i, each in enumerate(draws)}
    differences = over_random(made, seed=0)
    rows = [
        (IMPORTANCE, share, *own)
        for share, own in zip(SHARES, differences[IMPORTANCE][:-1], strict=True)
    ]
    curve = pd.DataFrame(rows, columns=["order", "share", *OVER_RANDOM])
    (said,) = conclusions(order_summary(differences, windows=len(tokens), draws=len(draws)), curve)
    return said


def test_the_difference_is_that_of_the_mean_losses_in_every_resample():
    made = {(IMPORTANCE, 0): losses(np.array([1.0, 3.0, 5.0, 6.0]))}
    made |= {(RANDOM, i): losses(np.array([1.0, 2.5, 4.0, 6.0])) for i in range(3)}
    # two windows or more of one loss and seeds that agree: no resample gives another number
    expected = [[0, 0, 0], [0.5, 0.5, 0.5], [1, 1, 1], [0, 0, 0], [0.75, 0.75, 0.75]]
    assert over_random(made, seed=3)[IMPORTANCE] == pytest.approx(np.array(expected))


def test_windows_weigh_by_their_tokens():
    nats = np.array([10.0, 0.0, 0.0, 0.0])
    nothing = TextLoss(np.zeros(4), TOKENS)
    one = [nothing, TextLoss(nats, TOKENS), TextLoss(nats, TOKENS), nothing]
    found = over_random({(IMPORTANCE, 0): one, (RANDOM, 0): [nothing] * 4}, seed=0)[IMPORTANCE]
    assert found[1, 0] == pytest.approx(10 / 100)
    assert found[1, 1] == 0  # the first window is in some resamples only
    assert found[1, 2] > 0.15


def test_the_interval_holds_what_other_seeds_would_have_given():
    made = {(IMPORTANCE, 0): losses(np.array([0, 1.0, 1.0, 0]))}
    made |= {(RANDOM, i): losses(np.array([0, own, own, 0])) for i, own in enumerate((0.0, 2.0))}
    value, low, high = over_random(made, seed=0)[IMPORTANCE][-1]
    assert value == pytest.approx(0)
    # half of the resamples have both seeds, a quarter each has one of them twice
    assert (low, high) == (pytest.approx(-1), pytest.approx(1))


def test_an_order_that_costs_more_than_chance_is_no_guide():
    said = told([2.0, 2.5], [[1.0, 1.5], [1.1, 1.6]])
    assert said.startswith(
        "importance is no guide here: masking by it costs 0.950 nats per token more than at random "
        "(95 % +0.900 … +1.000 over 4 windows and 2 random orders"
    )
    assert "yet" not in said


def test_an_order_that_costs_less_than_chance_is_a_guide():
    said = told([0.5, 1.0], [[1.0, 1.5], [1.1, 1.6]])
    assert said.startswith(
        "importance is a guide here: masking by it costs 0.550 nats per token less than at random"
    )


def test_an_order_among_the_random_ones_cannot_be_told_from_them():
    said = told([1.05, 1.55], [[1.0, 1.5], [1.1, 1.6]])
    assert said.startswith("importance cannot be told from chance here: masking by it costs")
    assert "yet" not in said


def test_the_steps_that_say_otherwise_are_named():
    said = told([0.2, 4.0], [[1.0, 1.5], [1.1, 1.6]])
    assert "no guide" in said
    assert said.endswith("yet it costs less at 50%")
    said = told([0.2, 2.4], [[1.0, 1.5], [1.1, 1.6]])
    assert "cannot be told from chance" in said
    assert said.endswith("yet it costs more at 90% and less at 50%")


def test_a_single_window_holds_no_order_against_chance():
    said = told([2.0, 2.5], [[1.0, 1.5]], np.array([10]))
    assert said == "importance cannot be held against chance here: a single window judges it"


def test_the_order_by_type_has_a_sentence_of_its_own():
    rows = [(order, 0.1, 0.05, 0.2, 4, 5) for order in (IMPORTANCE, TYPE)]
    table = pd.DataFrame(
        rows, columns=["order", "difference", "ci_low", "ci_high", "windows", "draws"]
    )
    curve = pd.DataFrame(columns=["order", "share", *OVER_RANDOM])
    assert [line.split(" is ")[0] for line in conclusions(table, curve)] == [
        "importance", "the order by type",
    ]  # fmt: skip
