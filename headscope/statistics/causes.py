"""Verdicts and sentences on the effects of ablating heads and knocking out edges."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headscope.statistics.columns import rows_of_head
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
    tested = causes["p_value"].notna() & (causes["verdict"] == "") & ~causes["behaviour"].isin(AWAY)
    causes["q_value"] = np.nan
    if tested.any():
        causes.loc[tested, "q_value"] = adjusted(causes.loc[tested, "p_value"].to_numpy(float))
    edges = causes["behaviour"] == EDGES
    least = np.where(edges, LEAST_EDGES, LEAST_HEADS)
    # divergence grows, predictions suffer downwards
    loss = causes["excess"].where(edges, -causes["excess"])
    low = causes["excess_low"].where(edges, -causes["excess_high"])
    high = causes["excess_high"].where(edges, -causes["excess_low"])
    exceeds_control = (low > 0).where(~edges, causes["times_low"] > 1)
    lost = edges & (causes["loss_excess"] >= LEAST_HEADS) & (causes["loss_low"] > 0)
    broken = ((loss >= least) & exceeds_control) | lost
    sure = causes["q_value"] < MAX_Q
    breaks = tested & broken & sure & _exceeds_controls(causes)
    is_direct = [head in direct_heads for head in zip(causes["layer"], causes["head"], strict=True)]
    small = (high < least) & ~(edges & (causes["loss_high"] >= LEAST_HEADS))
    idle = tested & small & np.array(is_direct, bool)
    conditions = [causes["verdict"] != "", breaks, idle]
    words = np.select(conditions, [causes["verdict"], CAUSAL_EFFECT, IDLE], NO_EFFECT)
    causes["verdict"] = np.where(causes["behaviour"].isin(AWAY), "", words)
    causes["direction"] = directions(causes)
    for name in ("layer", "head"):
        causes[name] = causes[name].astype("Int64")
    return causes[CAUSE_COLUMNS]


def directions(causes: pd.DataFrame) -> pd.Series:
    """`harm`, `help` or `unclear` for each row, by the side of 0 that an interval lies on.

    The interval of a head is that of its effect on a log-probability or on log-odds, which is harm
    below 0. A divergence has no direction: the interval of a tag is that of `loss_excess`, which is
    harm above 0. The text is empty if there is no interval.
    """
    edges = causes["behaviour"] == EDGES
    low = causes["loss_low"].where(edges, -causes["ci_high"]).astype(float)
    high = causes["loss_high"].where(edges, -causes["ci_low"]).astype(float)
    known = low.notna() & high.notna()
    words = np.select([~known, low > 0, high < 0], ["", HARM, HELP], UNCLEAR)
    return pd.Series(words, index=causes.index, dtype=object)


def _exceeds_controls(table: pd.DataFrame) -> pd.Series:
    """Heads with a loss beyond each control's, and larger at the relation's queries than
    elsewhere.
    """
    key = ["kind", "type", "layer", "head"]
    away_effects = table[table["behaviour"].isin(AWAY)].set_index(key)["effect"].to_dict()
    away_effect = [
        away_effects.get(group, np.nan) for group in table[key].itertuples(index=False, name=None)
    ]
    near = ~table["behaviour"].isin(NEAR) | np.isnan(away_effect) | (table["ci_high"] < away_effect)
    worse = table["ci_high"] < np.fmin(0, table["control_low"].astype(float))
    return (table["behaviour"] == EDGES) | (worse & near)


def cause_lines(table: pd.DataFrame, layer: int, head: int) -> list[str]:
    """Sentences on the effects of knocking out the edges of each tag, then of ablating the head."""
    causes = rows_of_head(table, layer, head)
    causes = causes.assign(direction=directions(causes))
    away = causes[causes["behaviour"].isin(AWAY)].set_index("type")["effect"]
    edges = [_edge_line(row) for row in causes[causes["kind"] == "tag"].to_dict("records")]
    alone = causes[(causes["kind"] == "head") & ~causes["behaviour"].isin(AWAY)]
    heads = [_head_line(row, away) for row in alone.to_dict("records")]
    return edges + heads


def _edge_line(row: dict[str, object]) -> str:
    name = f"{row['type']}/{row['relation']}"
    if pd.isna(row["effect"]):
        return f"{name}, edges to its targets: {row['verdict']}"
    return (
        f"{name}: knocking out the edges to its targets ({row['moved']:.2f} of the attention, at "
        f"{row['n']} queries) changes what is predicted there by {row['effect']:.4f} nats, "
        f"as much other attention of the layer by {row['control']:.4f}: {row['excess']:+.4f} "
        f"[{row['excess_low']:+.4f}, {row['excess_high']:+.4f}], typically "
        f"{row['times']:.1f} times as much [{row['times_low']:.1f}, {row['times_high']:.1f}]; "
        f"the loss of the next token changes by {row['loss']:+.3f} nats, {row['loss_excess']:+.3f} "
        f"[{row['loss_low']:+.3f}, {row['loss_high']:+.3f}] more than with the control "
        f"({row['direction']}){_q(row)}: {row['verdict']}"
    )


def _head_line(row: dict[str, object], away: pd.Series) -> str:
    if pd.isna(row["effect"]):
        return f"{row['type']}: {row['verdict']}"
    what, unit = BEHAVIOURS[str(row["behaviour"])]
    line = (
        f"{row['type']}: ablating it ({row['how']}) changes {what} from {row['clean']:.2f} "
        f"to {row['ablated']:.2f}: {row['effect']:+.3f} {unit} "
        f"[{row['ci_low']:+.3f}, {row['ci_high']:+.3f}] ({row['direction']})"
    )
    if row["type"] in away:
        line += f", elsewhere {away[row['type']]:+.3f}"
    elif row["behaviour"] in NEAR:
        line += "; its relation has queries at every token, so there are no other tokens"
    if pd.notna(row["control"]):
        line += f"; control heads {row['control']:+.3f}{_q(row)}"
    return f"{line}: {row['verdict']}"


def _q(row: dict[str, object]) -> str:
    return "" if pd.isna(row["q_value"]) else f", q {row['q_value']:.2g}"
