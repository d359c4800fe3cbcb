"""Verdicts on ablated heads and edges, and the lines on them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from headscope.statistics.causes import CAUSAL_EFFECT, EDGES, IDLE, NO_EFFECT, UNTESTED, judged
from headscope.statistics.in_words import causes_in_words

HEAD = {
    "kind": "tag",
    "layer": 0,
    "head": 1,
    "type": "induction",
    "relation": "repeat",
    "verdict": "",
}
BY_DIVERGENCE = HEAD | {
    "behaviour": EDGES,
    "n": 48,
    "effect": 0.02,
    "moved": 0.5,
    "control": 0.01,
    "p_value": 1e-6,
    "excess": 0.005,
    "excess_low": -0.1,
    "excess_high": 0.1,
    "times": 2.0,
    "times_low": 1.01,
    "times_high": 3.0,
    "loss": 0.0,
    "loss_excess": 0.0,
    "loss_low": -0.1,
    "loss_high": 0.1,
}
BY_LOSS = BY_DIVERGENCE | {
    "excess": 0.0,
    "times_low": 1.0,
    "loss": 0.02,
    "loss_excess": 0.02,
    "loss_low": 1e-3,
}
SMALL = BY_DIVERGENCE | {"excess": 1e-3, "excess_high": 4.9e-3, "loss_high": 0.019}
ABLATED = HEAD | {
    "kind": "head",
    "behaviour": "near",
    "how": "mean",
    "n": 48,
    "clean": -1.0,
    "ablated": -1.06,
    "effect": -0.06,
    "ci_low": -0.07,
    "ci_high": -0.05,
    "control": -0.03,
    "control_low": -0.04,
    "excess": -0.02,
    "excess_low": -0.03,
    "excess_high": -1e-3,
    "p_value": 1e-6,
}
WEAK = ABLATED | {"excess_low": -0.019, "excess": -0.01}


@pytest.mark.parametrize(
    ("row", "changes", "expected"),
    [
        (BY_DIVERGENCE, {}, CAUSAL_EFFECT),
        (BY_DIVERGENCE, {"excess": 4.9e-3}, NO_EFFECT),
        (BY_DIVERGENCE, {"times_low": 1.0}, NO_EFFECT),
        (BY_DIVERGENCE, {"p_value": 0.02}, NO_EFFECT),
        (BY_DIVERGENCE, {"verdict": f"{UNTESTED}: few queries"}, f"{UNTESTED}: few queries"),
        (BY_LOSS, {}, CAUSAL_EFFECT),
        (BY_LOSS, {"loss_excess": 0.019}, NO_EFFECT),
        (BY_LOSS, {"loss_low": 0.0}, NO_EFFECT),
        (SMALL, {}, IDLE),
        (SMALL, {"excess_high": 5e-3}, NO_EFFECT),
        (SMALL, {"loss_high": 0.02}, NO_EFFECT),
        (SMALL, {"head": 2}, NO_EFFECT),
        (ABLATED, {}, CAUSAL_EFFECT),
        (ABLATED, {"excess": -0.019}, NO_EFFECT),
        (ABLATED, {"excess_high": 0.0}, NO_EFFECT),
        (ABLATED, {"control_low": -0.05}, NO_EFFECT),
        (ABLATED, {"control_low": 0.04, "ci_high": 0.0}, NO_EFFECT),
        (ABLATED, {"away": -0.04}, CAUSAL_EFFECT),
        (ABLATED, {"away": -0.05}, NO_EFFECT),
        (WEAK, {}, IDLE),
        (WEAK, {"excess_low": -0.02}, NO_EFFECT),
    ],
)
def test_a_verdict_needs_every_one_of_its_conditions(row, changes, expected):
    """L0H1 has the direct effect; `away` is the effect on all other tokens."""
    changed = row | changes
    away = [ABLATED | {"behaviour": "away", "effect": changed["away"]}] if "away" in changes else []
    table = judged(pd.DataFrame([changed, *away]), {(0, 1)})
    assert table["verdict"].tolist() == [expected, *([""] * len(away))]
    line = causes_in_words(table, 0, changed["head"])[0]
    assert line.endswith(f": {expected}")
    assert ("q 1e-06" in line) == (not changed["verdict"] and changed["p_value"] < 1e-5)
    assert ("elsewhere" in line) == bool(away)


@pytest.mark.parametrize(
    ("row", "changes", "expected"),
    [
        (ABLATED, {}, "harm"),
        (ABLATED, {"effect": 0.06, "ci_low": 0.05, "ci_high": 0.07}, "help"),
        (ABLATED, {"ci_high": 0.01}, "unclear"),
        (ABLATED, {"ci_low": np.nan, "ci_high": np.nan}, ""),
        (BY_LOSS, {}, "harm"),
        (BY_LOSS, {"loss_low": -0.3, "loss_high": -0.1}, "help"),
        (BY_DIVERGENCE, {}, "unclear"),
    ],
)
def test_the_direction_is_harm_where_predictions_become_worse(row, changes, expected):
    table = judged(pd.DataFrame([row | changes]), set())
    assert table["direction"].tolist() == [expected]
    (line,) = causes_in_words(table, 0, 1)
    assert expected in line


def test_lines_leave_out_what_was_not_measured():
    untested = f"{UNTESTED}: no control"
    rows = [
        BY_DIVERGENCE | {"effect": np.nan, "verdict": untested},
        ABLATED | {"control": np.nan, "verdict": untested},
    ]
    edges, head = causes_in_words(judged(pd.DataFrame(rows), set()), 0, 1)
    assert "nan" not in edges + head
    assert edges == f"induction/repeat, edges to its targets: {untested}"
    assert "control heads" not in head
