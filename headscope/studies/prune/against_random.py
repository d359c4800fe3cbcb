"""Comparison of an order of heads with chance: the costs of masking by it and at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.measure.bootstrap import LEVEL, resample
from headscope.measure.study_windows import RESAMPLES
from headscope.models.loss import TextLoss

IMPORTANCE, RANDOM, TYPE = "importance", "random", "type"
"""The orders in which heads are masked."""
SURVIVORS_PREFIX = "kept_"
"""Before a type's name: the column of the curve with how many of its heads are still there."""
SUMMARY = ["order", "difference", "ci_low", "ci_high", "windows", "draws"]
OVER_RANDOM = ["over_random", "over_low", "over_high"]
"""Columns of the curve: the loss less the mean loss of the random orders, and its 95 % interval."""
_SUBJECTS = {IMPORTANCE: "importance", TYPE: "the order by type"}


def over_random(
    losses: Mapping[tuple[str, int], Sequence[TextLoss]], *, seed: int
) -> dict[str, Float[ndarray, "row bound"]]:
    """The difference of each order that is not random to the random ones at each step.

    Windows and random orders are drawn with replacement, both, so that the interval holds what
    other windows and other seeds would have given.

    Args:
        losses: by order and draw, a loss for each step; all of the same windows.
        seed: seeds the resamples.

    Returns:
        Nats per token: the difference, and its 95 % interval, NaN for a single window. The last
        row is their mean over the steps between none and all.
    """
    random_nats = np.array(
        [_nats(order_losses) for (order, _), order_losses in losses.items() if order == RANDOM]
    )
    tokens = next(iter(losses.values()))[0].tokens
    rng = np.random.default_rng(seed)
    windows = resample(len(tokens), rng, times=RESAMPLES)
    seeds = resample(len(random_nats), rng, times=RESAMPLES) / len(random_nats)
    again = windows @ tokens
    # resample × step: the mean of the drawn seeds' losses on the drawn windows
    chance = np.einsum("rd,dsw,rw->rs", seeds, random_nats, windows, optimize=True) / again[:, None]
    differences = {}
    for (order, _), order_losses in losses.items():
        if order != RANDOM:
            nats = _nats(order_losses)
            value = (nats - random_nats.mean(0)).sum(1) / tokens.sum()
            resampled = windows @ nats.T / again[:, None] - chance
            differences[order] = _with_interval(value, resampled, enough=len(tokens) > 1)
    return differences


def order_summary(
    differences: Mapping[str, Float[ndarray, "row bound"]], *, windows: int, draws: int
) -> pd.DataFrame:
    """A row per order: the mean difference over steps between none and all, with its interval."""
    rows = [(order, *bounds[-1], windows, draws) for order, bounds in differences.items()]
    return pd.DataFrame(rows, columns=SUMMARY)


def conclusions(table: pd.DataFrame, curve: pd.DataFrame) -> list[str]:
    """A sentence for each order: whether it is a guide to the heads that can be spared.

    Args:
        table: from `summary`.
        curve: with the columns `OVER_RANDOM`.
    """
    return [_conclusion(row, curve[curve["order"] == row["order"]]) for row in _records(table)]


def _records(table: pd.DataFrame) -> list[dict[str, object]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _conclusion(row: Mapping[str, object], steps: pd.DataFrame) -> str:
    low, high, mean = (float(str(row[name])) for name in ("ci_low", "ci_high", "difference"))
    subject = _SUBJECTS[str(row["order"])]
    if np.isnan(low):
        return f"{subject} cannot be held against chance here: a single window judges it"
    counted = f"over {row['windows']} windows and {row['draws']} random orders"
    interval = f"95 % {low:+.3f} … {high:+.3f} {counted}, mean of all steps between"
    if low <= 0 <= high:
        sentence = (
            f"{subject} cannot be told from chance here: masking by it costs {mean:+.3f} nats per "
            f"token against masking at random ({interval})"
        )
    elif low > 0:
        sentence = (
            f"{subject} is no guide here: masking by it costs {mean:.3f} nats per token more than "
            f"at random ({interval})"
        )
    else:
        sentence = (
            f"{subject} is a guide here: masking by it costs {-mean:.3f} nats per token less than "
            f"at random ({interval})"
        )
    return sentence + _exceptions(steps, low, high)


def _exceptions(steps: pd.DataFrame, low: float, high: float) -> str:
    """The steps whose own intervals say otherwise."""
    steps = steps[(steps["share"] > 0) & (steps["share"] < 1)]  # at the ends all orders are alike
    costlier = steps.loc[steps["over_low"] > 0, "share"] if low <= 0 else steps["share"].head(0)
    cheaper = steps.loc[steps["over_high"] < 0, "share"] if high >= 0 else steps["share"].head(0)
    clauses = [
        f"{words} at {', '.join(f'{share:.0%}' for share in shares)}"
        for words, shares in (("more", costlier), ("less", cheaper))
        if len(shares)
    ]
    return f"; yet it costs {' and '.join(clauses)}" if clauses else ""


def _nats(losses: Sequence[TextLoss]) -> Float[ndarray, "step window"]:
    return np.array([loss.nats for loss in losses])


def _with_interval(
    value: Float[ndarray, " step"], resampled: Float[ndarray, "resample step"], *, enough: bool
) -> Float[ndarray, "row bound"]:
    """Each step's value and interval, and below them those of their mean without the ends."""
    value = np.append(value, value[1:-1].mean())
    resampled = np.hstack([resampled, resampled[:, 1:-1].mean(1, keepdims=True)])
    bounds = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return np.stack([value, *(bounds if enough else bounds * np.nan)], axis=1)
