"""From sums to evidence: for every head × relation a mass, its control, interval and q value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy import stats

from headscope.evidence.columns import EVIDENCE_COLUMNS
from headscope.measure.bootstrap import interval, resample
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.relation import MIN_QUERIES, Relation

TWIN_PERCENTILE = 0.999
"""Of the twin's heads: what a relation's lift must exceed."""
TWIN_QUERIES = 8
"""A relation with fewer queries in the twin's share of the text says nothing about chance."""


def weigh(
    tally: Tally, relations: Sequence[Relation], *, seed: int, twin: Tally | None = None
) -> pd.DataFrame:
    """The evidence table, a row per head × relation that had a query, without `tagged`.

    - `n`: queries. `mass`: mean attention on the targets, in [0, 1]. `control`: the same on the
      control keys. `lift`: mass − control, in [−1, 1].
    - `ci_low`, `ci_high`: 95 % percentile bootstrap of the lift over blocks of documents.
    - `q_value`: one-sided test of lift > 0, Benjamini–Hochberg over all heads × relations with
      at least 50 queries.
    - `hit_rate`: share of queries whose arg-max key, the first token left out, is a target; not
      defined where the target is the first token.
    - `best_offset_rate`: share of queries that the best simple rule gets right: one fixed
      distance for syntax, the nearest mention for coreference.
    - `twin_p999`: 99.9th percentile of the lift over the heads of the shuffled twin.
    - `chance`: the mass of a head that spreads its attention evenly.
    """
    rng = np.random.default_rng(seed)
    tables = [
        _relation_table(tally, index, relation, rng)
        for index, relation in enumerate(relations)
        if tally.queries[:, index].sum() > 0
    ]
    if not tables:
        return pd.DataFrame(columns=EVIDENCE_COLUMNS)
    table = pd.concat(tables, ignore_index=True)
    table["q_value"] = _q_values(table)
    chance = {} if twin is None else dict(zip(twin.relations, twin_lift(twin), strict=True))
    table["twin_p999"] = (table["type"] + "/" + table["relation"]).map(chance).astype(float)
    return table


def twin_lift(twin: Tally) -> Float[ndarray, " relation"]:
    """The 99.9th percentile of the twin's heads' lift for each relation; NaN with few queries."""
    queries = twin.queries.sum(0)
    excess = (twin.target - twin.control).sum(0).reshape(len(queries), -1)
    lift = excess / np.maximum(queries, 1)[:, None]
    return np.where(queries >= TWIN_QUERIES, np.quantile(lift, TWIN_PERCENTILE, axis=1), np.nan)


def _relation_table(
    tally: Tally, index: int, relation: Relation, rng: np.random.Generator
) -> pd.DataFrame:
    full = tally.queries[:, index] > 0
    queries = tally.queries[full, index]
    n = queries.sum()
    flat = (int(full.sum()), tally.layers * tally.heads)
    target = tally.target[full, index].reshape(flat)
    control = tally.control[full, index].reshape(flat)
    low, high, p_value = _uncertainty(target - control, queries, rng)
    table = pd.DataFrame(
        {
            "layer": np.repeat(np.arange(tally.layers), tally.heads),
            "head": np.tile(np.arange(tally.heads), tally.layers),
            "type": relation.type,
            "relation": relation.name,
            "n": int(n),
            "mass": target.sum(0) / n,
            "control": control.sum(0) / n,
            "lift": (target - control).sum(0) / n,
            "ci_low": low,
            "ci_high": high,
            "p_value": p_value,
            "hit_rate": tally.hits[:, index].sum(0).ravel() / n,
            "best_offset_rate": tally.baselines[index].max() / n,
            "chance": tally.chance[:, index].sum() / n,
        }
    )
    if not relation.has_hits:
        table["hit_rate"] = np.nan
    if relation.baseline is None:
        table["best_offset_rate"] = np.nan
    return table


def _uncertainty(
    excess: Float[ndarray, "block head"],
    queries: Float[ndarray, " block"],
    rng: np.random.Generator,
) -> tuple[ndarray, ndarray, ndarray]:
    """Interval and one-sided p value of Σ excess / Σ queries, resampling or comparing blocks."""
    blocks = len(queries)
    if blocks < MIN_BLOCKS:
        return tuple(np.full((3, excess.shape[1]), np.nan))  # type: ignore[return-value]
    low, high = interval(excess, queries, resample(blocks, rng))
    # ratio estimator: the residuals of the blocks give the variance (Cochran 1977, 2.11 and 6.4)
    lift = excess.sum(0) / queries.sum()
    residual = excess - queries[:, None] * lift
    error = np.sqrt(blocks / (blocks - 1) * (residual**2).sum(0)) / queries.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(lift == 0, 0.0, lift / error)
    return low, high, stats.t.sf(t, blocks - 1)


def _q_values(table: pd.DataFrame) -> pd.Series:
    q = pd.Series(np.nan, index=table.index)
    tested = table["p_value"].notna() & (table["n"] >= MIN_QUERIES)
    if tested.any():
        q[tested] = stats.false_discovery_control(table.loc[tested, "p_value"])
    return q
