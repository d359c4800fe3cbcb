"""From sums to evidence: for every head × relation a mass, its control, interval and q value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy import stats

from headscope.evidence.columns import EVIDENCE_COLUMNS
from headscope.measure.bootstrap import interval, resample
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.contested import BUILT, MATCHED, NATURAL, part_name
from headscope.relations.relation import MIN_QUERIES, Relation

Facts = Mapping[str, Mapping[str, Any]]
"""What a text says of simple rules; see `headscope.measure.survey.Survey.facts`."""
NO_FACTS: Facts = MappingProxyType({})
EVERY_BLOCK = slice(None)

TWIN_PERCENTILE = 0.999
"""Of the twin's heads: what a relation's lift must exceed."""
TWIN_QUERIES = 8
"""A relation with fewer queries in the twin's share of the text says nothing about chance."""


def weigh(
    tally: Tally,
    relations: Sequence[Relation],
    *,
    seed: int,
    facts: Facts = NO_FACTS,
    twin: Tally | None = None,
    blocks: slice = EVERY_BLOCK,
) -> pd.DataFrame:
    """The evidence table, a row per head × relation that had a query, without verdicts.

    - `n`: queries. `mass`: mean attention on the targets, in [0, 1]. `control`: the same on the
      control keys, for words the rivals of the same query. `lift`: mass − control, in [−1, 1].
      `matched`: the same on a second control, e.g. other queries at the same distance.
    - `ci_low`, `ci_high`: 95 % percentile bootstrap of the lift over blocks of documents.
    - `q_value`: one-sided test of lift > 0, Benjamini–Hochberg over all heads × relations with
      at least 50 queries.
    - `hit_rate`: share of queries whose arg-max key, the first token and resting columns left out,
      is a target; not defined where the target is the first token.
    - `baseline`, `baseline_rate`: the best simple rule of the text, and the share of queries
      that it gets right; `best_offset_rate`: the same of the best fixed distance.
    - `contested_n`: queries where that rule is wrong. There: `contested_mass` on the targets,
      `rival` on what the rule picks, `contested_lift` their difference with its interval
      `contested_low`, `contested_high`; `contested_hit_rate`, and `contested_rule_rate`, what the
      best of all simple rules gets right there whose hit rate over all queries the head does not
      exceed by the margin. `contested_text`: `natural` or `built` sentences.
    - `twin_p999`: 99.9th percentile of the lift over the heads of the shuffled twin.
    - `chance`: the mass of a head that spreads its attention evenly.

    Args:
        tally: the sums.
        relations: those to weigh, each with its parts beside it in the tally.
        facts: what the text says of the simple rules; see `headscope.measure.survey.Survey`.
        seed: seeds the bootstrap.
        twin: the sums of the shuffled twin.
        blocks: those to weigh alone, e.g. half of them.
    """
    rng = np.random.default_rng(seed)
    place = {name: index for index, name in enumerate(tally.relations)}
    sums = _Sums(tally, blocks, rng)
    tables = []
    for relation in relations:
        own = sums.table(place[relation.id])
        if own is None:
            continue
        own.insert(2, "type", relation.type)
        own.insert(3, "relation", relation.name)
        if not relation.has_hits:
            own["hit_rate"] = np.nan
        tables.append(own.assign(**_beside(relation, own, sums, place, facts.get(relation.id, {}))))
    if not tables:
        return pd.DataFrame(columns=EVIDENCE_COLUMNS)
    table = pd.concat(tables, ignore_index=True)
    table["q_value"] = _q_values(table)
    chance = {} if twin is None else dict(zip(twin.relations, twin_lift(twin), strict=True))
    table["twin_p999"] = (table["type"] + "/" + table["relation"]).map(chance).astype(float)
    return table


def _beside(
    relation: Relation,
    own: pd.DataFrame,
    sums: _Sums,
    place: dict[str, int],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """The columns of a relation's second control and of its contested queries."""
    found: dict[str, Any] = dict.fromkeys(_CONTESTED, np.nan)
    found |= {
        "baseline": facts.get("baseline", ""),
        "baseline_rate": facts.get("baseline_rate", np.nan),
        "best_offset_rate": facts.get("best_offset_rate", np.nan),
        "contested_n": 0 if relation.baseline is not None else np.nan,
        "contested_rule_rate": np.nan,
        "contested_text": "",
        "matched": np.nan,
    }
    parts = {
        name: sums.table(place[part])
        for name in (MATCHED, NATURAL, BUILT)
        if (part := part_name(relation.id, name)) in place
    }
    if (matched := parts.get(MATCHED)) is not None:
        found["matched"] = matched["control"]
    natural, built = parts.get(NATURAL), parts.get(BUILT)
    of_text, chosen = "natural", natural
    if _queries(natural) < MIN_QUERIES <= _queries(built):
        of_text, chosen = "built", built
    if chosen is not None:
        found |= {ours: chosen[theirs] for ours, theirs in _CONTESTED.items()}
        found |= {
            "contested_n": _queries(chosen),
            "contested_rule_rate": rule_rate(
                own["hit_rate"].to_numpy(),
                facts.get(f"{of_text}_rules", ()),
                relation.rule.beat_baseline_by or 0.0,
            ),
            "contested_text": of_text,
        }
    return found


def rule_rate(
    hit_rate: Float[ndarray, " head"], rules: Sequence[Sequence[float]], margin: float
) -> Float[ndarray, " head"]:
    """What the best simple rule gets right at contested queries, of those as good as each head."""
    found = np.zeros(len(hit_rate))
    for overall, there in rules:
        level = hit_rate < overall + margin
        found = np.where(level, np.maximum(found, there), found)
    return found


_CONTESTED = {
    "contested_mass": "mass",
    "rival": "control",
    "contested_lift": "lift",
    "contested_low": "ci_low",
    "contested_high": "ci_high",
    "contested_hit_rate": "hit_rate",
}


def _queries(table: pd.DataFrame | None) -> int:
    return 0 if table is None else int(table["n"].iloc[0])


def twin_lift(twin: Tally) -> Float[ndarray, " relation"]:
    """The 99.9th percentile of the twin's heads' lift for each relation; NaN with few queries."""
    queries = twin.queries.sum(0)
    excess = (twin.target - twin.control).sum(0).reshape(len(queries), -1)
    lift = excess / np.maximum(queries, 1)[:, None]
    return np.where(queries >= TWIN_QUERIES, np.quantile(lift, TWIN_PERCENTILE, axis=1), np.nan)


class _Sums:
    """A tally's rows as tables of heads."""

    def __init__(self, tally: Tally, blocks: slice, rng: np.random.Generator) -> None:
        self._tally, self._blocks, self._rng = tally, blocks, rng

    def table(self, index: int) -> pd.DataFrame | None:
        """A row per head for one relation of the tally; None without queries."""
        tally = self._tally
        queries = tally.queries[self._blocks, index]
        full = queries > 0
        if not full.any():
            return None
        target, control = (
            sums[self._blocks, index][full].reshape(int(full.sum()), -1)
            for sums in (tally.target, tally.control)
        )
        queries = queries[full]
        n = queries.sum()
        low, high, p_value = _uncertainty(target - control, queries, self._rng)
        return pd.DataFrame(
            {
                "layer": np.repeat(np.arange(tally.layers), tally.heads),
                "head": np.tile(np.arange(tally.heads), tally.layers),
                "n": int(n),
                "mass": target.sum(0) / n,
                "control": control.sum(0) / n,
                "lift": (target - control).sum(0) / n,
                "ci_low": low,
                "ci_high": high,
                "p_value": p_value,
                "hit_rate": tally.hits[self._blocks, index].sum(0).ravel() / n,
                "chance": tally.chance[self._blocks, index].sum() / n,
            }
        )


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
