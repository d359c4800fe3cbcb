"""Estimates from sums: for every head × relation a mass, its control, interval and q value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray

from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.effects import Effect
from headscope.relations.parts import EASY, HARD, MATCHED_CONTROL, SELF
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.statistics.columns import (
    EFFECT_NUMBERS,
    EVIDENCE_COLUMNS,
    HARD_COLUMNS,
    TEXT_COLUMNS,
    TOP_COLUMNS,
)
from headscope.statistics.conditions import TIMES_CONTROL
from headscope.statistics.ratio import (
    effective_queries,
    influence_error,
    rate_interval,
    ratio,
    ratio_influence,
    student_half_width,
    wilson_interval,
)
from headscope.statistics.relation_sums import RelationSums, TallySums

BaselineRates = Mapping[str, Mapping[str, Any]]
"""Rates of baselines on a text; see `rates` of `headscope.measure.fit_baselines`."""
NO_RATES: BaselineRates = MappingProxyType({})
_COMPARED_COLUMNS = (*HARD_COLUMNS, *TOP_COLUMNS, *TEXT_COLUMNS.values())
_Columns = dict[str, Any]
"""Columns of a table by name: an element for each head, or a value that holds for all of them."""


def weigh(
    tally: Tally,
    relations: Sequence[Relation],
    *,
    seed: int,
    rates: BaselineRates = NO_RATES,
) -> pd.DataFrame:
    """The evidence table, a row per head × relation that had a query, without verdicts.

    `docs/reference/columns.md` describes its columns: those of relations under `evidence.csv`,
    those of effects under `effects.csv`. Intervals are 95 % percentile bootstraps
    over blocks of documents; if the mass is below the threshold, so that no tag needs them, they
    are Student's intervals of the same ratio. `q_value` is Benjamini–Hochberg's over all heads ×
    relations with at least 50 queries.
    """
    sums = TallySums(tally, seed)
    tables = []
    for relation in relations:
        relation_sums = sums.of(relation)
        if relation_sums is None:
            continue
        if isinstance(relation, Effect):
            columns = _effect_columns(relation, relation_sums, sums)
        else:
            relation_rates = rates.get(relation.id, {})
            columns = _attention_columns(relation, relation_sums, sums, relation_rates)
        names = {"type": relation.type, "relation": relation.name, "id": relation.id}
        tables.append(columns | names)
    if not tables:
        return pd.DataFrame(columns=["id", *EVIDENCE_COLUMNS, *EFFECT_NUMBERS, "threshold"])
    table = pd.DataFrame({name: _stacked(name, tables) for name in tables[0]})
    table = table[table["n"] > 0].reset_index(drop=True)
    # all heads × relations that could earn a tag are tested together
    tested = table["p_value"].notna() & (table["n"] >= MIN_QUERIES)
    table["q_value"] = np.nan
    if tested.any():
        table.loc[tested, "q_value"] = adjusted(table.loc[tested, "p_value"].to_numpy())
    return table


def _stacked(name: str, tables: Sequence[_Columns]) -> ndarray:
    """A column of all tables, one under the other; what is said once holds for every head."""
    columns = []
    for table in tables:
        heads = len(table["mass"])
        columns.append(np.broadcast_to(table[name], heads))
    return np.concatenate(columns)


def _lift_columns(
    sums: RelationSums, tally: Tally, bounded: Bool[ndarray, " head"], sign: int = 1
) -> _Columns:
    # the condition compares the mass with a multiple of the control, so the error is that of
    # mass − multiple × control
    excess = sums.excess
    uncertainty = sums.uncertainty(excess, bounded, sign)
    above_control = sums.target - TIMES_CONTROL * sums.control
    return {
        "layer": np.repeat(tally.numbers, tally.heads),
        "head": np.tile(np.arange(tally.heads), tally.layers),
        "mass": sums.mean(sums.target),
        "control": sums.mean(sums.control),
        "lift": sums.mean(excess),
        "ci_low": uncertainty.low,
        "ci_high": uncertainty.high,
        "p_value": uncertainty.p_value,
        "control_error": sums.margin_of_error(above_control),
    }


def _attention_columns(
    relation: Relation, sums: RelationSums, tally_sums: TallySums, rates: Mapping[str, Any]
) -> _Columns:
    # below the threshold no tag needs the dearer interval from resamples
    bounded = sums.mean(sums.target) >= relation.thresholds.threshold
    queries = sums.divisor.sum()
    hit_rate = sums.mean(sums.hits)
    # hits leave the first token out, so that a relation to it has no such rate
    if not relation.has_hits:
        hit_rate = np.full_like(hit_rate, np.nan)
    columns = _lift_columns(sums, tally_sums.tally, bounded) | {
        "n": int(queries),
        "hit_rate": hit_rate,
        "chance": float(sums.chance.sum() / queries),
        "mass_error": sums.margin_of_error(sums.target),
        "baseline": rates.get("baseline", ""),
        "baseline_rate": rates.get("baseline_rate", np.nan),
        "matched_control": np.nan,
    }
    matched_control = tally_sums.of(relation, MATCHED_CONTROL)
    if matched_control is not None:
        columns["matched_control"] = matched_control.mean(matched_control.control)
    return columns | _hard_columns(relation, tally_sums, rates)


def _hard_columns(relation: Relation, tally_sums: TallySums, rates: Mapping[str, Any]) -> _Columns:
    columns: _Columns = dict.fromkeys(_COMPARED_COLUMNS, np.nan)
    # no hard query was found, which is other than that none was looked for
    if relation.baseline is not None:
        columns["hard_n"] = columns["text_hard_n"] = 0.0
    hard, easy = (tally_sums.of(relation, part) for part in (HARD, EASY))
    corners = rates.get("baselines")
    if hard is None or not corners:
        return columns
    preferences = preference(hard, easy, corners)
    top = top_rate(hard)
    columns |= {
        "hard_n": float(hard.divisor.sum()),
        "hard_rate": preferences.rate,
        "hard_low": preferences.low,
        "hard_high": preferences.high,
        "easy_rate": preferences.easy_rate,
        "hard_baseline_rate": preferences.baseline_rate,
        "top_rate": top.rate,
        "top_low": top.low,
        "top_high": top.high,
    }
    # what the verdict would rest on without the challenge set
    hard = hard.of_text_alone()
    if not hard.divisor.any():
        return columns
    easy = None if easy is None else easy.of_text_alone()
    if easy is not None and not easy.divisor.any():
        easy = None
    preferences = preference(hard, easy, corners)
    return columns | {
        "text_hard_n": float(hard.divisor.sum()),
        "text_hard_rate": preferences.rate,
        "text_hard_low": preferences.low,
        "text_hard_high": preferences.high,
        "text_hard_baseline_rate": preferences.baseline_rate,
    }


def _effect_columns(effect: Effect, sums: RelationSums, tally_sums: TallySums) -> _Columns:
    every_head = np.ones(sums.target.shape[1], bool)
    columns = _lift_columns(sums, tally_sums.tally, every_head, effect.sign)
    columns |= dict.fromkeys(EFFECT_NUMBERS, np.nan)
    second = tally_sums.of(effect, MATCHED_CONTROL)
    at_self = tally_sums.of(effect, SELF)
    queries = sums.divisor
    # at the same queries the effects of heads add up, so that each has a share
    if effect.top_key is None:
        total = sums.excess.sum(0)
        columns["share"] = ratio(total, np.abs(total).sum())
    elif second is not None:
        # each head has queries of its own here: `n` is their number, while the divisor of the sums
        # is the number of distinct tokens
        queries = second.divisor
        columns["spread"] = sums.mean(second.target)
    # over control tokens of another kind
    if second is not None:
        excess = sums.target - second.control
        uncertainty = sums.uncertainty(excess, every_head, effect.sign)
        columns["second_lift"] = sums.mean(excess)
        columns["second_low"] = uncertainty.low
        columns["second_high"] = uncertainty.high
    # without what passes through the query's own position, where earlier layers' predictions lie
    if at_self is not None:
        excess = sums.excess - at_self.target
        uncertainty = sums.uncertainty(excess, every_head, effect.sign)
        columns["moved"] = sums.mean(excess)
        columns["moved_low"] = uncertainty.low
        columns["moved_high"] = uncertainty.high
    return columns | {
        "n": queries.sum(0).astype(np.int64),
        "threshold": effect.thresholds.threshold,
    }


def adjusted(p_values: Float[ndarray, " test"]) -> Float[ndarray, " test"]:
    """Each test's smallest false discovery rate at which it is rejected, in [0, 1].

    As `scipy.stats.false_discovery_control`, whose import takes longer than most commands.
    Benjamini & Hochberg 1995, as adjusted by Yekutieli & Benjamini 1999, definition 2.4.

    >>> adjusted(np.array([0.01, 0.04, 0.03])).round(3).tolist()
    [0.03, 0.04, 0.04]
    """
    count = len(p_values)
    order = np.argsort(p_values)
    times = count / np.arange(1, count + 1)
    rates = p_values[order] * times
    # a test is rejected wherever one with a larger p value is
    smallest = np.minimum.accumulate(rates[::-1])[::-1]
    q_values = np.empty(count)
    q_values[order] = smallest
    return q_values.clip(0, 1)


@dataclass(frozen=True, eq=False)
class Preference:
    """Mean preference of heads for the target at hard and easy queries, each number in [0, 1].

    The preference at a query is the targets' share of the squared attention on all candidates, or
    0 if they have less attention than `headscope.relations.hard_queries.least_attention`. A
    baseline puts all attention on one key.
    """

    rate: Float[ndarray, " head"]
    """The mean over hard queries."""
    low: Float[ndarray, " head"]
    high: Float[ndarray, " head"]
    easy_rate: Float[ndarray, " head"]
    """The mean over easy queries."""
    baseline_rate: Float[ndarray, " head"]
    """Mean at hard queries of the best mixture of baselines with this mean at easy queries."""


class MixtureBound:
    """Best rate at hard queries of a mixture of baselines, by its rate at easy queries.

    A mixture follows one baseline at some queries and another at the others. The best ones lie on
    straight lines between the corners.

    Args:
        corners: easy and hard rate of the baselines that no mixture of others exceeds, the easy
            rates falling; see `FittedBaselines.rates`.

    >>> bound = MixtureBound([[1.0, 0.0], [0.4, 0.6], [0.0, 0.8]])
    >>> easy_rate = np.array([0.7, 0.2])
    >>> bound.at(easy_rate).round(3), bound.slope(easy_rate).round(3)
    (array([0.3, 0.7]), array([-1. , -0.5]))
    """

    _STEP = 0.01
    """Difference of easy rates by which the slope is measured."""

    def __init__(self, corners: Sequence[Sequence[float]]) -> None:
        rising = np.array(corners[::-1])
        self._easy_rates = rising[:, 0]
        self._hard_rates = rising[:, 1]

    def at(self, easy_rate: Float[ndarray, " head"]) -> Float[ndarray, " head"]:
        """The best rate at hard queries, in [0, 1]."""
        return np.asarray(np.interp(easy_rate, self._easy_rates, self._hard_rates))

    def slope(self, easy_rate: Float[ndarray, " head"]) -> Float[ndarray, " head"]:
        """Change of the best rate per unit of the easy rate, at most 0."""
        fall = self.at(easy_rate) - self.at(easy_rate - self._STEP)
        return np.asarray(fall / self._STEP)


def preference(
    hard: RelationSums, easy: RelationSums | None, corners: Sequence[Sequence[float]]
) -> Preference:
    """Mean preference of heads beside the mixture of baselines; see `MixtureBound` for the corners.

    The 95 % interval is of the mean at hard queries if that of the baselines is fixed: the wider
    of Student's over blocks of documents, which includes the error of the baselines' mean by that
    of the easy one, and Wilson's of as many independent queries as have the same error as the mean.
    Its low end is at most, and its high end at least, that of as many queries that all have
    preference 1, or 0. NaN with fewer than eight blocks.
    """
    # a head may follow a baseline that is right at hard queries and wrong at easy ones
    bound = MixtureBound(corners)
    rate = hard.mean(hard.preference)
    easy_rate = np.ones_like(rate) if easy is None else easy.mean(easy.preference)
    if hard.blocks < MIN_BLOCKS:
        low = high = np.full_like(rate, np.nan)
    else:
        queries = float(hard.divisor.sum())
        influence = ratio_influence(hard.preference, hard.divisor)
        error = influence_error(influence, hard.blocks)
        half_width = student_half_width(error, hard.blocks)
        # near 0 and 1 a mean of few queries is skewed, as a share is, and Student's t is not
        effective = effective_queries(rate, half_width, queries)
        if easy is not None:
            easy_influence = ratio_influence(easy.preference, easy.divisor)
            influence = influence - bound.slope(easy_rate) * easy_influence
        interval = rate_interval(rate, influence, queries=effective, items=hard.blocks)
        largest_low = wilson_interval(np.ones(1), queries).low
        low = interval.low.clip(None, largest_low)
        high = interval.high.clip(1 - largest_low, None)
    return Preference(
        rate=rate,
        low=low,
        high=high,
        easy_rate=easy_rate,
        baseline_rate=bound.at(easy_rate),
    )


class TopRate(NamedTuple):
    """Share of hard queries at which a target has more attention than any other token.

    Sinks are left out. Each number is in [0, 1].
    """

    rate: Float[ndarray, " head"]
    low: Float[ndarray, " head"]
    high: Float[ndarray, " head"]


def top_rate(hard: RelationSums) -> TopRate:
    """The share with its 95 % interval, the wider of Wilson's for a share and Student's over
    blocks of documents; NaN with fewer than eight blocks.
    """
    rate = hard.mean(hard.top_queries)
    if hard.blocks < MIN_BLOCKS:
        unknown = np.full_like(rate, np.nan)
        return TopRate(rate, unknown, unknown)
    influence = ratio_influence(hard.top_queries, hard.divisor)
    queries = float(hard.divisor.sum())
    interval = rate_interval(rate, influence, queries=queries, items=hard.blocks)
    return TopRate(rate, interval.low, interval.high)
