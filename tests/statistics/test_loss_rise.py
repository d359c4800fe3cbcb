"""The rise of a loss and its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headscope.causal.loss import TextLoss
from headscope.statistics.loss_rise import rise


def test_a_rise_has_the_interval_of_its_windows():
    """Windows whose rises are all alike leave no doubt; unlike ones bracket the mean."""
    tokens = np.array([10, 20, 30, 40])
    base = TextLoss(tokens * 2.0, tokens)
    assert rise(TextLoss(tokens * 2.5, tokens), base) == pytest.approx((0.5, 0.5, 0.5))
    value, low, high = rise(TextLoss(tokens * np.array([2.0, 2.5, 3.0, 2.2]), tokens), base)
    assert value == pytest.approx((0.5 * 20 + 1.0 * 30 + 0.2 * 40) / 100)
    assert 0 <= low < value < high <= 1
    single = rise(TextLoss(np.array([3.0]), np.array([1])), TextLoss(np.ones(1), np.array([1])))
    assert single[0] == 2
    assert math.isnan(single[1])
    assert math.isnan(single[2])
