"""From sums to evidence: for every head × relation a mass, its control, interval and q value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.special import stdtr, stdtrit

from headscope.evidence.columns import EVIDENCE_COLUMNS
from headscope.measure.bootstrap import LEVEL, interval, ratio_error, resample
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.contested import BUILT, MATCHED, NATURAL, part_name
from headscope.relations.relation import MIN_QUERIES, Relation

Facts = Mapping[str, Mapping[str, Any]]
"""What a text says of simple rules; see `headscope.measure.survey.Survey.facts`."""
NO_FACTS: Facts = MappingProxyType({})
_Columns = dict[str, Any]
"""Columns of a table by name: an element for each head, or a value that holds for all of them."""

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
    half: slice | None = None,
) -> pd.DataFrame:
    """The evidence table, a row per head × relation that had a query, without verdicts.

    - `n`: queries. `mass`: mean attention on the targets, in [0, 1]. `control`: the same on the
      control keys, for words the rivals of the same query. `lift`: mass − control, in [−1, 1].
      `matched`: the same on a second control, e.g. other queries at the same distance.
    - `ci_low`, `ci_high`: 95 % percentile bootstrap of the lift over blocks of documents; where
      the mass is below the floor, so that no tag hangs on it, Student's interval of the same ratio.
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
        half: the blocks to weigh alone, e.g. every other one.
    """
    place = {name: index for index, name in enumerate(tally.relations)}
    sums = _Sums(tally, half or slice(None), seed)
    tables = []
    for relation in relations:
        index = place[relation.id]
        if not sums.queries(index):
            continue
        bounded = sums.mass(index) >= relation.rule.floor
        own = sums.columns(index, bounded)
        if not relation.has_hits:
            own["hit_rate"] = np.full_like(own["mass"], np.nan)
        own |= {"type": relation.type, "relation": relation.name}
        own |= _beside(relation, own, sums, place, facts.get(relation.id, {}), bounded)
        tables.append(own)
    if not tables:
        return pd.DataFrame(columns=EVIDENCE_COLUMNS)
    table = pd.DataFrame({name: _stacked(name, tables) for name in tables[0]})
    table["q_value"] = _q_values(table)
    chance = {} if twin is None else dict(zip(twin.relations, twin_lift(twin), strict=True))
    table["twin_p999"] = (table["type"] + "/" + table["relation"]).map(chance).astype(float)
    return table


def _stacked(name: str, tables: Sequence[_Columns]) -> ndarray:
    """A column of all tables, one under the other; what is said once holds for every head."""
    values = [table[name] for table in tables]
    heads = [len(table["mass"]) for table in tables]
    return np.concatenate([np.broadcast_to(v, n) for v, n in zip(values, heads, strict=True)])


def _beside(
    relation: Relation,
    own: _Columns,
    sums: _Sums,
    place: dict[str, int],
    facts: Mapping[str, Any],
    bounded: Bool[ndarray, " head"],
) -> _Columns:
    """The columns of a relation's second control and of its contested queries."""
    found: _Columns = dict.fromkeys(_CONTESTED, np.nan)
    found |= {
        "baseline": facts.get("baseline", ""),
        "baseline_rate": facts.get("baseline_rate", np.nan),
        "best_offset_rate": facts.get("best_offset_rate", np.nan),
        "contested_n": 0.0 if relation.baseline is not None else np.nan,
        "contested_rule_rate": np.nan,
        "contested_text": "",
        "matched": np.nan,
    }
    places = {
        name: place[part]
        for name in (MATCHED, NATURAL, BUILT)
        if (part := part_name(relation.id, name)) in place
    }
    queries = {name: sums.queries(part) for name, part in places.items()}
    if queries.get(MATCHED, 0):
        found["matched"] = sums.control(places[MATCHED])
    natural, built = queries.get(NATURAL, 0), queries.get(BUILT, 0)
    of_text = BUILT if natural < MIN_QUERIES <= built else NATURAL
    if queries.get(of_text, 0):
        chosen, text = sums.columns(places[of_text], bounded), _TEXTS[of_text]
        found |= {ours: chosen[theirs] for ours, theirs in _CONTESTED.items()}
        found |= {
            "contested_n": float(queries[of_text]),
            "contested_rule_rate": rule_rate(
                own["hit_rate"],
                facts.get(f"{text}_rules", ()),
                relation.rule.beat_baseline_by or 0.0,
            ),
            "contested_text": text,
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


_TEXTS = {NATURAL: "natural", BUILT: "built"}
_CONTESTED = {
    "contested_mass": "mass",
    "rival": "control",
    "contested_lift": "lift",
    "contested_low": "ci_low",
    "contested_high": "ci_high",
    "contested_hit_rate": "hit_rate",
}


def twin_lift(twin: Tally) -> Float[ndarray, " relation"]:
    """The 99.9th percentile of the twin's heads' lift for each relation; NaN with few queries."""
    queries = twin.queries.sum(0)
    # exact, as all that a tally adds
    excess = (twin.target.sum(0) - twin.control.sum(0)).reshape(len(queries), -1)
    lift = excess / np.maximum(queries, 1)[:, None]
    return np.where(queries >= TWIN_QUERIES, np.quantile(lift, TWIN_PERCENTILE, axis=1), np.nan)


class _Sums:
    """A tally's rows as columns, an element for each head."""

    def __init__(self, tally: Tally, blocks: slice, seed: int) -> None:
        self._tally, self._blocks, self._seed = tally, blocks, seed
        self._draws: dict[int, ndarray] = {}

    def queries(self, index: int) -> int:
        """How many one relation of the tally has."""
        return int(self._tally.queries[self._blocks, index].sum())

    def mass(self, index: int) -> Float[ndarray, " head"]:
        """The mass on the targets of one relation."""
        return self._mean(self._tally.target, index)

    def control(self, index: int) -> Float[ndarray, " head"]:
        """The mass on the control keys of one relation."""
        return self._mean(self._tally.control, index)

    def columns(self, index: int, bounded: Bool[ndarray, " head"]) -> _Columns:
        """The columns of one relation that has queries.

        Args:
            index: its place in the tally.
            bounded: the heads whose interval is from resamples.
        """
        tally = self._tally
        of_block = tally.queries[self._blocks, index]
        full = of_block > 0
        n = of_block.sum()
        excess = tally.target[self._blocks, index] - tally.control[self._blocks, index]
        excess = excess[full].reshape(int(full.sum()), -1)
        low, high, p_value = self._uncertainty(excess, of_block[full], bounded)
        return {
            "layer": np.repeat(tally.numbers, tally.heads),
            "head": np.tile(np.arange(tally.heads), tally.layers),
            "n": int(n),
            "mass": self.mass(index),
            "control": self.control(index),
            "lift": excess.sum(0) / n,
            "ci_low": low,
            "ci_high": high,
            "p_value": p_value,
            "hit_rate": self._mean(tally.hits, index),
            "chance": float(tally.chance[self._blocks, index].sum() / n),
        }

    def _mean(
        self, sums: Float[ndarray, "block relation layer head"], index: int
    ) -> Float[ndarray, " layer*head"]:
        return np.asarray(sums[self._blocks, index].sum(0).ravel() / max(self.queries(index), 1))

    def _uncertainty(
        self,
        excess: Float[ndarray, "block head"],
        queries: Float[ndarray, " block"],
        bounded: Bool[ndarray, " head"],
    ) -> tuple[ndarray, ndarray, ndarray]:
        """Interval and one-sided p value of Σ excess / Σ queries: blocks resampled or compared."""
        blocks, heads = excess.shape
        if blocks < MIN_BLOCKS:
            return tuple(np.full((3, heads), np.nan))  # type: ignore[return-value]
        lift, error = excess.sum(0) / queries.sum(), ratio_error(excess, queries[:, None])
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(lift == 0, 0.0, lift / error)
        wide = stdtrit(blocks - 1, (1 + LEVEL) / 2) * error
        low, high = lift - wide, lift + wide
        low[bounded], high[bounded] = interval(excess[:, bounded], queries, self._drawn(blocks))
        return low, high, stdtr(blocks - 1, -t)  # above t in Student's distribution

    def _drawn(self, blocks: int) -> Float[ndarray, "resample block"]:
        """The resamples of so many blocks, the same for every relation that has as many."""
        if blocks not in self._draws:
            self._draws[blocks] = resample(blocks, np.random.default_rng([self._seed, blocks]))
        return self._draws[blocks]


def _q_values(table: pd.DataFrame) -> pd.Series:
    q = pd.Series(np.nan, index=table.index)
    tested = table["p_value"].notna() & (table["n"] >= MIN_QUERIES)
    if tested.any():
        q[tested] = adjusted(table.loc[tested, "p_value"].to_numpy())
    return q


def adjusted(p_values: Float[ndarray, " test"]) -> Float[ndarray, " test"]:
    """Each test's smallest false discovery rate at which it is rejected, in [0, 1].

    As `scipy.stats.false_discovery_control`, whose import takes longer than most commands.
    Benjamini & Hochberg 1995, as adjusted by Yekutieli & Benjamini 1999, definition 2.4.

    >>> adjusted(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.04, 0.04]
    """
    order, count = np.argsort(p_values), len(p_values)
    q = p_values[order] * (count / np.arange(1, count + 1))
    found = np.empty(count)
    # a test is rejected wherever one with a larger p value is
    found[order] = np.minimum.accumulate(q[::-1])[::-1]
    return found.clip(0, 1)
