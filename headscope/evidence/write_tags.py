"""What a run says of its heads' writes: columns beside each head, and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from headscope.evidence.columns import WRITE_COLUMNS
from headscope.evidence.effects import SECOND, STANDS_OUT, effect_ids
from headscope.relations.writes.effect import ELSEWHERE, WRITES, Effect

_HEAD = ["layer", "head"]
SHOWN = 3
"""Effects without a tag that are shown of a head."""
NEAR = 0.5
"""Share of the floor below which an effect is no near miss."""

Facts = Mapping[str, Mapping[str, Any]]
"""What `run.json` says of each effect."""


def effect_facts(effects: Sequence[Effect]) -> dict[str, dict[str, Any]]:
    """What `run.json` says of the effects that a run measured."""
    return {
        each.id: {
            "floor": each.rule.floor,
            "sign": each.sign,
            "meaning": each.rule.meaning,
            "source": each.rule.source,
            "second": each.second,
            "unit": each.unit,
        }
        for each in effects
    }


def with_writes(heads: pd.DataFrame, effects: pd.DataFrame) -> pd.DataFrame:
    """The heads with what they write: types joined by `;`, the strongest first, and its lift."""
    tagged = effects[effects["tagged"].astype(bool)]
    tagged = tagged.loc[_strongest_first(tagged)].drop_duplicates([*_HEAD, "type"])
    found = {
        key: (";".join(own["type"]), float(own["lift"].iloc[0]))
        for key, own in tagged.groupby(_HEAD, sort=False)
    }
    keys = list(zip(heads["layer"], heads["head"], strict=True))
    types = [found.get(key, ("", float("nan")))[0] for key in keys]
    lifts = [found.get(key, ("", float("nan")))[1] for key in keys]
    return heads.assign(**dict(zip(WRITE_COLUMNS, (types, lifts), strict=True)))


def write_lines(effects: pd.DataFrame | None, facts: Facts, layer: int, head: int) -> list[str]:
    """What a head writes, a sentence each: its tags, then what came near one."""
    if effects is None:
        return [
            "not measured: `classify --writes` measures what a head adds to the model's predictions"
        ]
    own = effects[(effects["layer"] == layer) & (effects["head"] == head)]
    own = own.loc[_strongest_first(own)]
    tagged = own[own["tagged"].astype(bool)]
    other = own.drop(tagged.index)
    sign = effect_ids(other).map({k: v["sign"] for k, v in facts.items()})
    near = other[other["lift"] * sign.astype(float) >= NEAR * other["floor"]].head(SHOWN)
    lines = [_line(row, facts, "") for row in tagged.to_dict("records")]
    lines += [_line(row, facts, "no tag: ") for row in near.to_dict("records")]
    return lines or ["nothing that was asked for"]


def _line(row: dict[Any, Any], facts: Facts, before: str) -> str:
    name = f"{row['type']}/{row['effect']}"
    fact = facts[f"{WRITES}/{name}"]
    meaning, unit = fact["meaning"], fact.get("unit", "logits")
    line = (
        f"{before}{name}: it {meaning}: {row['on']:+.2f} {unit}, control "
        f"{row['control']:+.2f}, lift {row['lift']:+.2f} [{row['ci_low']:+.2f}, "
        f"{row['ci_high']:+.2f}], q {row['q_value']:.1g}, n {row['n']}, floor {row['floor']:g}"
    )
    if pd.notna(row["second_lift"]):
        # runs of an earlier version had a second control where each head is asked by its own look
        second = facts[f"{WRITES}/{name}"].get("second", ELSEWHERE)
        line += (
            f"; over {second} {row['second_lift']:+.2f} [{row['second_low']:+.2f}, "
            f"{row['second_high']:+.2f}], needs {SECOND * row['floor']:g}"
        )
    if pd.notna(row["moved"]):
        where = "without its own position" if unit == "logits" else "read at that name"
        line += (
            f"; {where} {row['moved']:+.2f} [{row['moved_low']:+.2f}, "
            f"{row['moved_high']:+.2f}], needs {row['floor']:g}"
        )
    if pd.notna(row["spread"]):
        line += (
            f"; {abs(row['lift'] / row['spread']):.1f} × the spread of its effects over the text's "
            f"tokens, needs {STANDS_OUT:g}"
        )
    if pd.notna(row["share"]):
        line += f"; {row['share']:.0%} of what all heads write there"
    if pd.notna(row["twin_p999"]):
        line += f"; shuffled twin {row['twin_p999']:+.2f}"
    return line


def _strongest_first(effects: pd.DataFrame) -> pd.Index:
    strength = (effects["lift"].abs() / effects["floor"]).fillna(0.0)
    return strength.sort_values(ascending=False, kind="stable").index
