"""What heads write, from sums to tags: the mean effect on target tokens less that on controls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy.special import stdtr

from headscope.evidence.columns import EFFECT_COLUMNS
from headscope.evidence.conditions import MAX_Q
from headscope.evidence.halves import HALVES
from headscope.evidence.weigh import TWIN_PERCENTILE, TWIN_QUERIES, adjusted
from headscope.measure.bootstrap import LEVEL, ratio_error, resample
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.contested import MATCHED, SELF, part_name
from headscope.relations.relation import MIN_QUERIES
from headscope.relations.writes.effect import WRITES, Effect

STANDS_OUT = 0.5
"""Least lift in units of the standard deviation of a head's effects over the tokens of the text. A
head that writes much raises whatever it looks at by chance: with random V and O the lift's mean
over a hundred tokens is some tenths of it, and of either sign."""
SECOND = 0.5
"""Least share of the floor that a head must have over the second control, too."""


@dataclass(frozen=True)
class WriteCondition:
    """One thing that a tag by what a head writes asks for."""

    name: str
    holds: Callable[[pd.DataFrame], pd.Series]
    """Of a table whose lifts count upwards in the direction that the effect asks for."""
    say: str
    """Speaks of one row, in the direction that was measured."""


WRITE_CONDITIONS = (
    WriteCondition("queries", lambda t: t["n"] >= t["fewest"], "{n} queries, needs {fewest}"),
    WriteCondition(
        "floor", lambda t: t["lift"] >= t["floor"], "lift {shown:+.2f} logits, floor {floor:g}"
    ),
    WriteCondition(
        "interval", lambda t: t["ci_low"] > 0, "interval [{low:+.2f}, {high:+.2f}], 0 outside"
    ),
    WriteCondition("q value", lambda t: t["q_value"] < MAX_Q, "q {q_value:.2g}, below 0.01"),
    WriteCondition(
        "second control",
        lambda t: (
            t["second_lift"].isna()
            | ((t["second_lift"] >= SECOND * t["floor"]) & (t["second_low"] > 0))
        ),
        "over {elsewhere} {second:+.2f}",
    ),
    WriteCondition(
        "moved",
        lambda t: t["moved"].isna() | ((t["moved"] >= t["floor"]) & (t["moved_low"] > 0)),
        "{moved:+.2f} from other positions than its own, floor {floor:g}",
    ),
    WriteCondition(
        "stands out",
        lambda t: t["spread"].isna() | (t["lift"] >= STANDS_OUT * t["spread"]),
        "{times:.1f} × the spread of its effects over the text's tokens",
    ),
    WriteCondition(
        "twin",
        lambda t: t["twin_p999"].isna() | (t["lift"] > t["twin_p999"]),
        "shuffled twin's 99.9th percentile {twin:+.2f}",
    ),
)


def weigh_effects(
    tally: Tally,
    effects: Sequence[Effect],
    *,
    seed: int,
    twin: Tally | None = None,
    looks: int = 1,
) -> pd.DataFrame:
    """The table of effects, a row per head × effect that had a query.

    - `n`: queries at which the head was asked. `on`: its mean direct effect on the tokens asked
      about, in logits; `control`: on the control tokens; `lift`: their difference, below 0 for a
      head that lowers them. `ci_low`, `ci_high`: 95 % percentile bootstrap over blocks.
    - `q_value`: one-sided test of the lift in the direction of the effect, Benjamini–Hochberg over
      all heads × effects with at least 50 queries.
    - `second_lift` with its interval `second_low`, `second_high`: over the second control.
    - `moved` with `moved_low`, `moved_high`: the lift without what the head reads at the query's
      own position, where earlier layers' predictions stand; not defined for `copy`, `suppress`
      and `successor`, nor where the engine does not see the model's values.
    - `spread`: the standard deviation of the head's effects over the tokens of the text, the mean
      over its queries; not defined where the text names the tokens.
    - `share`: of the summed sizes of the lifts of all heads of the model, in [−1, 1]; not defined
      where every head is asked at queries of its own.
    - `twin_p999`: what at most one head of a thousand of the shuffled twin exceeds.
    - `tagged`; and `confirmed`, 1 where both halves of the documents give the tag by themselves.

    Args:
        tally: the sums; those of effects have their names.
        effects: those to weigh.
        seed: seeds the bootstrap.
        twin: the sums of the shuffled twin.
        looks: how often the run asked whether it had read enough; q values are multiplied by it.
    """
    table = _judged(_Judge(tally, effects, seed, twin, looks), slice(None), MIN_QUERIES)
    halves = [_judged(_Judge(tally, effects, seed, twin), own, MIN_QUERIES // 2) for own in HALVES]
    table["confirmed"] = np.nan
    if len(table):
        key = ["layer", "head", "type", "effect"]
        both = [
            table[key].merge(half[[*key, "tagged", "ci_low"]], on=key, how="left")
            for half in halves
        ]
        agree = both[0]["tagged"].eq(True) & both[1]["tagged"].eq(True)
        able = both[0]["ci_low"].notna() & both[1]["ci_low"].notna()
        table["confirmed"] = agree.astype(float).where(able.to_numpy() & table["tagged"])
    return table[EFFECT_COLUMNS]


class _Judge(NamedTuple):
    """What effects are judged by."""

    tally: Tally
    effects: Sequence[Effect]
    seed: int
    twin: Tally | None
    looks: int = 1


def _judged(by: _Judge, half: slice, fewest: int) -> pd.DataFrame:
    tally, effects = by.tally, by.effects
    place = {name: index for index, name in enumerate(tally.relations)}
    tables = [
        _rows(by, each, place, half)
        for each in effects
        if each.id in place and tally.hits[half, place[each.id]].any()
    ]
    if not tables:
        return pd.DataFrame(columns=[*EFFECT_COLUMNS, "p_value"])
    table = pd.concat(tables, ignore_index=True)
    tested = table["p_value"].notna() & (table["n"] >= fewest)
    table["q_value"] = np.nan
    if tested.any():
        found = adjusted(table.loc[tested, "p_value"].to_numpy())
        # Bonferroni's correction: a run that looked several times had as many chances
        table.loc[tested, "q_value"] = np.minimum(1.0, found * by.looks)
    taggable = {each.id: each.rule.taggable for each in effects}
    held = write_failures(table, effects, fewest=fewest).sum(axis=1) == 0
    table["tagged"] = held & effect_ids(table).map(taggable).astype(bool)
    return table


def write_failures(
    table: pd.DataFrame, effects: Sequence[Effect], *, fewest: int = MIN_QUERIES
) -> pd.DataFrame:
    """For each row of `weigh_effects` a column per condition: True where it fails."""
    upward = _upward(table, {each.id: each.sign for each in effects}).assign(fewest=fewest)
    return pd.DataFrame({c.name: ~c.holds(upward).astype(bool) for c in WRITE_CONDITIONS})


def effect_ids(table: pd.DataFrame) -> pd.Series:
    """The full name of each row's effect."""
    found: pd.Series = f"{WRITES}/" + table["type"] + "/" + table["effect"]
    return found


def _upward(table: pd.DataFrame, signs: dict[str, int]) -> pd.DataFrame:
    """The table with lifts that count upwards in the direction that each effect asks for."""
    sign = effect_ids(table).map(signs).astype(float)
    found = table.copy()
    for name in ("lift", "second_lift", "moved", "twin_p999"):
        found[name] = table[name] * sign
    for each in ("ci", "second", "moved"):
        low, high = f"{each}_low", f"{each}_high"
        found[low] = np.where(sign > 0, table[low], -table[high])
        found[high] = np.where(sign > 0, table[high], -table[low])
    return found


def _rows(by: _Judge, effect: Effect, place: dict[str, int], half: slice) -> pd.DataFrame:
    """The rows of one effect, all heads, without q values."""
    tally, seed = by.tally, by.seed
    index = place[effect.id]
    count = _flat(tally.hits[half, index])
    excess = _flat(tally.target[half, index] - tally.control[half, index])
    second = place.get(part_name(effect.id, MATCHED))
    # what the sums are divided by counts distinct tokens where heads are asked at their own queries
    n = (count if effect.looked is None else _flat(tally.hits[half, second])).sum(0)
    weight = count.sum(0)
    low, high, p_value = _uncertainty(excess, count, effect.sign, seed)
    own = {
        "layer": np.repeat(np.arange(tally.layers), tally.heads),
        "head": np.tile(np.arange(tally.heads), tally.layers),
        "type": effect.type,
        "effect": effect.name,
        "n": n.astype(np.int64),
        "on": _ratio(_flat(tally.target[half, index]).sum(0), weight),
        "control": _ratio(_flat(tally.control[half, index]).sum(0), weight),
        "lift": _ratio(excess.sum(0), weight),
        "ci_low": low,
        "ci_high": high,
        "p_value": p_value,
        "spread": np.nan,
        "second_lift": np.nan,
        "second_low": np.nan,
        "second_high": np.nan,
        "moved": np.nan,
        "moved_low": np.nan,
        "moved_high": np.nan,
        "share": np.nan,
        "twin_p999": _twin_lift(by.twin, effect),
        "floor": effect.rule.floor,
    }
    if effect.looked is None:
        total = excess.sum(0)
        own["share"] = _ratio(total, np.full(len(n), np.abs(total).sum()))
    else:
        own["spread"] = _ratio(_flat(tally.target[half, second]).sum(0), weight)
    if second is not None:
        over = _flat(tally.target[half, index] - tally.control[half, second])
        own["second_lift"] = _ratio(over.sum(0), weight)
        own["second_low"], own["second_high"], _ = _uncertainty(over, count, effect.sign, seed)
    mine = place.get(part_name(effect.id, SELF))
    if mine is not None and tally.hits[half, mine].any():
        left = excess - _flat(tally.target[half, mine])
        own["moved"] = _ratio(left.sum(0), weight)
        own["moved_low"], own["moved_high"], _ = _uncertainty(left, count, effect.sign, seed)
    table = pd.DataFrame(own)
    return table[table["n"] > 0]


def _uncertainty(
    excess: Float[ndarray, "block head"],
    count: Float[ndarray, "block head"],
    sign: int,
    seed: int,
) -> tuple[ndarray, ndarray, ndarray]:
    """Interval and one-sided p value of Σ excess / Σ count, of each head's own queries.

    NaN for a head that was asked in fewer than eight blocks.
    """
    used = (count > 0).sum(1) > 0
    excess, count = excess[used], count[used]
    blocks = (count > 0).sum(0)
    draws = resample(len(count), np.random.default_rng([seed, len(count)]))
    with np.errstate(divide="ignore", invalid="ignore"):
        # a head that is asked in few blocks is in none of some resamples, which say nothing of it
        ratios = (draws @ excess) / (draws @ count)
        ratios[:, blocks == 0] = 0
        low, high = np.nanquantile(ratios, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0)
        lift, error = excess.sum(0) / count.sum(0), ratio_error(excess, count)
        t = np.where(lift == 0, 0.0, sign * lift / error)
        p_value = stdtr(np.maximum(blocks - 1, 1), -t)
    few = blocks < MIN_BLOCKS
    return tuple(np.where(few, np.nan, each) for each in (low, high, p_value))  # type: ignore[return-value]


def _twin_lift(twin: Tally | None, effect: Effect) -> float:
    """What at most one head of a thousand of the twin exceeds, in the effect's direction."""
    if twin is None:
        return float("nan")
    index = twin.relations.index(effect.id)
    count = _flat(twin.hits[:, index]).sum(0)
    excess = _flat(twin.target[:, index] - twin.control[:, index]).sum(0)
    asked = count >= TWIN_QUERIES
    if not asked.any():
        return float("nan")
    lift = effect.sign * excess[asked] / count[asked]
    return float(effect.sign * np.quantile(lift, TWIN_PERCENTILE))


def _flat(sums: Float[ndarray, "block layer head"]) -> Float[ndarray, "block layer*head"]:
    return sums.reshape(len(sums), -1)


def _ratio(sums: ndarray, count: ndarray) -> ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(count == 0, np.nan, sums / count)
