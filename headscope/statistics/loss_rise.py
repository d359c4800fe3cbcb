"""The rise of a loss on a text, and how sure it is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headscope.causal.loss import TextLoss
from headscope.statistics.bootstrap import interval, resample

RESAMPLES = 2_000


class Rise(NamedTuple):
    """A difference of two losses in nats per token, with its 95 % interval."""

    mean: float
    low: float
    high: float


def rise(after: TextLoss, before: TextLoss, *, seed: int = 0) -> Rise:
    """The difference of two losses in nats per token, with its 95 % interval.

    Windows are drawn with replacement and both losses are taken on the same draw (a paired
    percentile bootstrap); the bounds are NaN for a single window, which cannot be resampled.
    """
    difference = after.nats - before.nats
    windows = len(before.tokens)
    value = float(difference.sum() / before.tokens.sum())
    rng = np.random.default_rng(seed)
    draws = resample(windows, rng, times=RESAMPLES)
    low, high = interval(difference, before.tokens, draws)
    return Rise(value, float(low), float(high))
