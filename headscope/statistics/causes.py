"""Verdicts and sentences on the effects of ablating heads and knocking out edges."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.statistics.conditions import MAX_Q
from headscope.statistics.estimates import adjusted

CAUSE_COLUMNS = [
    "kind", "layer", "head", "type", "behaviour", "how", "n", "clean", "ablated",
    "effect", "ci_low", "ci_high", "control", "control_low", "control_high",
    "relation", "moved", "excess", "excess_low", "excess_high", "times", "times_low", "times_high",
    "loss", "loss_excess", "loss_low", "loss_high", "q_value", "verdict", "direction",
]  # fmt: skip
EDGES = "edges"
BEHAVIOURS = {
    "repeat": ("the log-probability of repeated tokens", "nats per token"),
    "agreement": ("the log-odds of the verb that agrees", "nats"),
    "pronoun": ("the log-odds of the pronoun that agrees", "nats"),
    "near": ("the log-probability of what follows its queries", "nats per token"),
    "away": ("the log-probability of all other tokens", "nats per token"),
    "masked-near": ("the log-probability of its queries, masked", "nats per token"),
    "masked-away": ("the log-probability of all other tokens, masked", "nats per token"),
    "state-near": ("the last state at its queries", "of its length"),
    "state-away": ("the last state at all other tokens", "of its length"),
    EDGES: ("the next token's distribution at its queries", "nats"),
}
NEAR = ("near", "masked-near", "state-near")
AWAY = ("away", "masked-away", "state-away")
"""Behaviours at a relation's queries, and elsewhere; encoders fill masked tokens, or show how far
their last states move."""

CAUSAL_EFFECT = "causal effect"
IDLE = "direct effect alone"
NO_EFFECT = "no effect detected"
UNTESTED = "not tested"
"""Results of the test of a tag; `not tested` may be followed by a colon and the reason."""

HARM, HELP, UNCLEAR = "harm", "help", "unclear"
"""Directions of an effect: predictions become worse, become better, or the interval includes 0."""

LEAST_EDGES = 0.005
"""Least divergence above that of the controls, in nats, that is an effect: by Pinsker's inequality
it moves at most 5 % of the next token's probability."""
LEAST_HEADS = 0.02
"""Least loss beyond that of the control heads, in nats per token or of log-odds; of states a share
of their length."""
COMPETENT = 0.1
"""Nats by which the untouched model must be above chance, the whole interval of it."""


def judged(table: pd.DataFrame, direct_heads: set[tuple[int, int]]) -> pd.DataFrame:
    """The table of causes with a `q_value`, a `verdict` and a `direction` in each row.

    - `causal effect`: the effect beyond the control's is at least the least effect, its
      interval lies on that side of 0, and q < 0.01; for heads it is also beyond each control's, and
      at a relation's queries larger than elsewhere, the whole interval of it. Edges have two ways
      to it, and their q is of both: by divergence, where the interval of how many times the
      control's it typically is must lie above 1, or by loss of the token that follows, as heads do.
    - `direct effect alone`: the head is tagged by its direct effect, but the whole interval of
      the effect beyond the control's lies below the least effect.
    - `no effect detected`: neither.
    - `not tested: …`: stated before by whoever measured, and kept.

    Args:
        table: rows without these columns but for reasons not to test in `verdict`, with a
            `p_value` of each test.
        direct_heads: the heads that are tagged by their direct effect, as (layer, head).
    """
    missing = [name for name in CAUSE_COLUMNS if name not in table]
    causes = table.reindex(columns=[*table.columns, *missing])
    is_away = causes["behaviour"].isin(AWAY)
    is_stated = causes["verdict"] != ""
    tested = causes["p_value"].notna() & ~is_stated & ~is_away

    # many tests are made: a share of discoveries may be false
    causes["q_value"] = np.nan
    if tested.any():
        p_values = causes.loc[tested, "p_value"].to_numpy(float)
        causes.loc[tested, "q_value"] = adjusted(p_values)
    is_certain = causes["q_value"] < MAX_Q
    breaks = tested & _is_broken(causes) & is_certain & _exceeds_controls(causes)

    # a head with a direct effect is idle if all of its interval lies below the least effect
    edges = _is_edges(causes)
    high = causes["excess_high"].where(edges, -causes["excess_low"])
    may_lose = edges & (causes["loss_high"] >= LEAST_HEADS)
    is_small = (high < _least_effect(causes)) & ~may_lose
    heads = zip(causes["layer"], causes["head"], strict=True)
    is_direct = np.array([head in direct_heads for head in heads], bool)
    idle = tested & is_small & is_direct

    # reasons not to test were stated before; elsewhere than at its queries nothing is tested
    words = np.select(
        [is_stated, breaks, idle],
        [causes["verdict"], CAUSAL_EFFECT, IDLE],
        NO_EFFECT,
    )
    causes["verdict"] = np.where(is_away, "", words)
    causes["direction"] = directions(causes)
    for name in ("layer", "head"):
        causes[name] = causes[name].astype("Int64")
    return causes[CAUSE_COLUMNS]


def _is_edges(causes: pd.DataFrame) -> pd.Series:
    return causes["behaviour"] == EDGES


def _least_effect(causes: pd.DataFrame) -> Float[ndarray, " cause"]:
    return np.where(_is_edges(causes), LEAST_EDGES, LEAST_HEADS)


def _is_broken(causes: pd.DataFrame) -> pd.Series:
    """Effects beyond the control's of at least the least size, with their interval beyond 0."""
    edges = _is_edges(causes)
    # divergence grows, predictions suffer downwards
    excess = causes["excess"].where(edges, -causes["excess"])
    low = causes["excess_low"].where(edges, -causes["excess_high"])
    exceeds_control = (low > 0).where(~edges, causes["times_low"] > 1)
    is_large = excess >= _least_effect(causes)
    is_loss_large = causes["loss_excess"] >= LEAST_HEADS
    is_loss_certain = causes["loss_low"] > 0
    loses = edges & is_loss_large & is_loss_certain
    return (is_large & exceeds_control) | loses


def directions(causes: pd.DataFrame) -> pd.Series:
    """`harm`, `help` or `unclear` for each row, by the side of 0 that an interval lies on.

    The interval of a head is that of its effect on a log-probability or on log-odds, which is harm
    below 0. A divergence has no direction: the interval of a tag is that of `loss_excess`, which is
    harm above 0. The text is empty if there is no interval.
    """
    edges = _is_edges(causes)
    low = causes["loss_low"].where(edges, -causes["ci_high"]).astype(float)
    high = causes["loss_high"].where(edges, -causes["ci_low"]).astype(float)
    has_interval = low.notna() & high.notna()
    words = np.select(
        [~has_interval, low > 0, high < 0],
        ["", HARM, HELP],
        UNCLEAR,
    )
    return pd.Series(words, index=causes.index, dtype=object)


def _exceeds_controls(table: pd.DataFrame) -> pd.Series:
    """Heads with a loss beyond each control's, and larger at the relation's queries than
    elsewhere.
    """
    # the effect of the same ablation at all other tokens
    key = ["kind", "type", "layer", "head"]
    away = table[table["behaviour"].isin(AWAY)]
    effect_of = away.set_index(key)["effect"].to_dict()
    groups = table[key].itertuples(index=False, name=None)
    away_effect = [effect_of.get(group, np.nan) for group in groups]
    # effects are changes of log-probabilities: the worst is the lowest, and the interval's upper
    # end must lie below what the control heads reach
    highest = table["ci_high"]
    control_low = table["control_low"].astype(float)
    is_worse = highest < np.fmin(0, control_low)
    is_larger_near = highest < away_effect
    # other behaviours, and relations with queries at every token, have nothing elsewhere
    has_no_away = ~table["behaviour"].isin(NEAR) | np.isnan(away_effect)
    is_specific = has_no_away | is_larger_near
    return _is_edges(table) | (is_worse & is_specific)
