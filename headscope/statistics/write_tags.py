"""Text and columns of a run on its heads' writes: columns beside each head, and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from headscope.relations.effect import WRITES, Effect
from headscope.statistics.columns import WRITE_COLUMNS, rows_of_head
from headscope.statistics.conditions import BESIDE_LIFT, CONDITIONS

_HEAD = ["layer", "head"]
MAX_SENTENCES = 3
"""Effects without a tag that are shown of a head."""
NEAR = 0.5
"""Share of the floor below which an effect is no near miss."""

Facts = Mapping[str, Mapping[str, Any]]
"""What `run.json` says of each effect."""


def effect_facts(effects: Sequence[Effect]) -> dict[str, dict[str, Any]]:
    """Entries of `run.json` for the effects that a run measured."""
    return {
        effect.id: {
            name: getattr(effect.rule, name)
            for name in ("floor", "sign", "meaning", "source", "second")
        }
        for effect in effects
    }


def effect_ids(effects: pd.DataFrame) -> pd.Series:
    """The full name of each row's effect."""
    ids: pd.Series = f"{WRITES}/" + effects["type"] + "/" + effects["effect"]
    return ids


def with_writes(heads: pd.DataFrame, effects: pd.DataFrame) -> pd.DataFrame:
    """The heads with what they write: types joined by `;`, the strongest first, and its lift."""
    tagged = effects[effects["tagged"].astype(bool)]
    tagged = tagged.loc[_strongest_first(tagged)].drop_duplicates([*_HEAD, "type"])
    writes_of = {
        key: (";".join(tags["type"]), float(tags["lift"].iloc[0]))
        for key, tags in tagged.groupby(_HEAD, sort=False)
    }
    keys = list(zip(heads["layer"], heads["head"], strict=True))
    types = [writes_of.get(key, ("", float("nan")))[0] for key in keys]
    lifts = [writes_of.get(key, ("", float("nan")))[1] for key in keys]
    return heads.assign(**dict(zip(WRITE_COLUMNS, (types, lifts), strict=True)))


def write_lines(effects: pd.DataFrame | None, facts: Facts, layer: int, head: int) -> list[str]:
    """Sentences on what a head writes: its tags, then what came near one."""
    if effects is None:
        return [
            "not measured: headscope classify --writes measures what a head adds to the model's "
            "predictions"
        ]
    head_effects = rows_of_head(effects, layer, head)
    head_effects = head_effects.loc[_strongest_first(head_effects)]
    tagged = head_effects[head_effects["tagged"].astype(bool)]
    other = head_effects.drop(tagged.index)
    sign = effect_ids(other).map({k: v["sign"] for k, v in facts.items()})
    near = other[other["lift"] * sign.astype(float) >= NEAR * other["floor"]].head(MAX_SENTENCES)
    lines = [_line(row, facts, "") for row in tagged.to_dict("records")]
    lines += [_line(row, facts, "no tag: ") for row in near.to_dict("records")]
    return lines or ["nothing that was asked for"]


def _line(row: dict[Any, Any], facts: Facts, before: str) -> str:
    name = f"{row['type']}/{row['effect']}"
    fact = facts[f"{WRITES}/{name}"]
    line = (
        f"{before}{name}: it {fact['meaning']}: {row['on']:+.2f} logits, control "
        f"{row['control']:+.2f}, lift {row['lift']:+.2f} [{row['ci_low']:+.2f}, "
        f"{row['ci_high']:+.2f}], q {row['q_value']:.1g}, n {row['n']}, floor {row['floor']:g}"
    )
    row = row | {"second": fact["second"]}
    for condition in CONDITIONS:
        if condition.name in BESIDE_LIFT and condition.is_asked(row):
            line += f"; {condition.say(row)}"
    if pd.notna(row["share"]):
        line += f"; {row['share']:.0%} of what all heads write there"
    if pd.notna(row["twin_p999"]):
        line += f"; shuffled twin {row['twin_p999']:+.2f}"
    return line


def _strongest_first(effects: pd.DataFrame) -> pd.Index:
    strength = (effects["lift"].abs() / effects["floor"]).fillna(0.0)
    return strength.sort_values(ascending=False, kind="stable").index
