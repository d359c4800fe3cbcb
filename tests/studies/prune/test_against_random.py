"""Excess loss of an order over random orders, on losses made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.measure.study_windows import TextLoss
from headscope.studies.prune import IMPORTANCE, RANDOM, over_random

TOKENS = np.array([10, 20, 30, 40])


def losses(per_token: np.ndarray, tokens: np.ndarray = TOKENS) -> list[TextLoss]:
    """A loss for each share, the same in every window."""
    return [TextLoss(value * tokens, tokens) for value in per_token]


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


def test_a_single_window_has_no_interval():
    tokens = np.array([10])
    made = {(IMPORTANCE, 0): losses(np.array([0, 2.0, 2.5, 3]), tokens)}
    made[RANDOM, 0] = losses(np.array([0, 1.0, 1.5, 3]), tokens)
    difference, low, high = over_random(made, seed=0)[IMPORTANCE][-1]
    assert difference == pytest.approx(1)
    assert np.isnan([low, high]).all()
