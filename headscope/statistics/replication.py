"""The probability that another text of the same size gives a tag again.

Each condition of a tag compares a number x with a threshold t. On another text x has the same
expectation and an error of its own, so that it meets the threshold again with the probability
Φ((x − t) / (√2 · standard error)). Errors are those over blocks of documents, times `NOISE`:
another text also has other hard queries, and other windows for surrogates. Conditions fail
together, so that the probability for all of them lies between that of the weakest and the product:
their geometric mean, with the weight `COMMON` on the weakest.

The two numbers are calibrated on texts that share nothing; see `tests.oracles.replicate`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy.special import ndtr, ndtri

from headscope.relations.relation import MIN_QUERIES
from headscope.statistics.condition import Numbers
from headscope.statistics.conditions import MAX_Q, MIN_HARD, ON_THIS_TEXT, Q_VALUE, has_no_interval
from headscope.statistics.ratio import Z_95

NOISE = 1.5
"""Standard errors of another text in units of those over the blocks of this text."""
COMMON = 0.7
"""Weight of the weakest condition."""


def replicates(table: pd.DataFrame) -> Float[ndarray, " row"]:
    """The probability that another text of the same size gives the tag of each row, in [0, 1].

    NaN for relations that never give a tag, and for those without an interval. For a row that no
    surrogate was fitted for, it is that of the other conditions.

    Args:
        table: rows with thresholds.
    """
    numbers = Numbers(table)
    by_condition = [_counts_again(numbers["n"], MIN_QUERIES)]

    # q is below its bound again, by the normal deviation that has q as its p value
    q_value = np.nan_to_num(numbers["q_value"], nan=1.0).clip(1e-300, 1 - 1e-12)
    distance = ndtri(MAX_Q) - ndtri(q_value)
    by_condition.append(passes_again(distance, np.ones_like(distance)))

    # every other condition by its margin; what does not apply holds for certain
    for condition in ON_THIS_TEXT:
        if condition.margin is None or condition.name == Q_VALUE:
            continue
        margin = condition.margin(numbers)
        error = (margin.high - margin.low) / (2 * Z_95)
        distance = margin.low if condition.tests_low else margin.value
        probability = passes_again(distance, error)
        if condition.applies is not None:
            probability = np.where(condition.applies(numbers), probability, 1.0)
        by_condition.append(probability)

    # hard queries are counted too
    has_hard = numbers.has("hard_n") & numbers.has("beat_baseline_by")
    enough_hard = _counts_again(numbers["hard_n"], MIN_HARD)
    by_condition.append(np.where(has_hard, enough_hard, 1.0))

    # conditions fail together: between the weakest and the product
    probabilities = np.stack(by_condition)
    weakest = probabilities.min(axis=0)
    product = probabilities.prod(axis=0)
    probability = weakest**COMMON * product ** (1 - COMMON)
    is_known = (numbers["taggable"] > 0) & ~has_no_interval(numbers)
    return np.where(is_known, probability, np.nan)


def passes_again(
    distance: Float[ndarray, " row"], error: Float[ndarray, " row"]
) -> Float[ndarray, " row"]:
    """Probability that a number with a standard error is above its threshold on another text.

    Without an error it is 1 or 0: the number is above the threshold or is not.

    >>> passes_again(np.array([0.0, 0.1, 0.1]), np.array([0.1, 0.0, np.nan]))
    array([0.5, 1. , 1. ])
    """
    is_known = error > 0
    spread = np.sqrt(2) * NOISE * error
    scaled = distance / np.where(is_known, spread, 1)
    is_above = (distance >= 0).astype(float)
    has_both = is_known & ~np.isnan(distance)
    return np.where(has_both, ndtr(scaled), is_above)


def _counts_again(count: Float[ndarray, " row"], fewest: int) -> Float[ndarray, " row"]:
    """Probability that another text has enough queries, whose number varies as Poisson's."""
    return passes_again(count - fewest, np.sqrt(count))
