"""Sensitivity to the thresholds: tags if floors and margins were others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pandas as pd

from headscope.relations import head_types
from headscope.relations.relation import TagThresholds
from headscope.statistics.conditions import TIMES_CONTROL, failures
from headscope.statistics.estimates import NO_FACTS, Facts, rule_rate
from headscope.statistics.tags import with_rules

FACTORS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)
"""What the thresholds are multiplied by; 1 is what the run was judged by."""
FLOOR, CONTROL, MARGIN = "floor", "control", "margin"
THRESHOLDS = {
    FLOOR: "each relation's floor of mass",
    CONTROL: f"the {TIMES_CONTROL:g} × control that mass must reach",
    MARGIN: "the margin of hit rate over simple rules",
}
"""What is varied, one at a time."""
LOWER, HIGHER = 0.9, 1.1

_Change = Callable[[pd.DataFrame, float], pd.DataFrame]


def tags_by_threshold(
    evidence: pd.DataFrame,
    rules: Mapping[str, TagThresholds],
    facts: Facts = NO_FACTS,
) -> pd.DataFrame:
    """Counts of the tags of each type with other thresholds, from evidence alone.

    Args:
        evidence: a row per head × relation, as in `evidence.csv`.
        rules: the thresholds of each relation by its full name.
        facts: what simple rules get right, as `run.json` says; a smaller margin leaves a head
            fewer of them to beat. Without it those of the run's own margin are taken.

    Returns:
        `threshold`, `factor`, `type`, `tags`: heads with a tag of the type, ≥ 0. Types that have
        none at any factor are left out.
    """
    if evidence.empty:
        return pd.DataFrame(columns=["threshold", "factor", "type", "tags"])
    table = with_rules(evidence, rules)
    # what fails by the least of all three fails by any; the rest is a small part
    least = min(FACTORS)
    easiest = _margins(_controls(_floors(table, least), least), least, facts)
    table = table[~failures(easiest).any(axis=1)]
    changes: dict[str, _Change] = {
        FLOOR: _floors,
        CONTROL: _controls,
        MARGIN: partial(_margins, facts=facts),
    }
    varied = pd.concat(
        [
            changes[name](table, factor).assign(threshold=name, factor=factor)
            for name in THRESHOLDS
            for factor in FACTORS
        ],
        ignore_index=True,
    )
    tagged = varied[~failures(varied).any(axis=1)]
    heads = tagged.drop_duplicates(["threshold", "factor", "type", "layer", "head"])
    every = pd.MultiIndex.from_product(
        [THRESHOLDS, FACTORS, sorted(heads["type"].unique())], names=["threshold", "factor", "type"]
    )
    counts = heads.groupby(["threshold", "factor", "type"]).size()
    return counts.reindex(every, fill_value=0).rename("tags").reset_index()


def in_one_line(table: pd.DataFrame) -> str:
    """Tags lost if floors are a tenth higher, and won if they are a tenth lower.

    Heads at rest are counted by themselves, because they are many and say little.
    """
    floors = table[table["threshold"] == FLOOR]
    if table.empty:
        return ""
    rests = floors["type"].isin([t.name for t in head_types().values() if not t.functional])
    sentences = []
    for what, in_class in (
        ("tags", ~rests),
        ("tags of attention sinks", rests),
    ):
        tags = (
            floors[in_class]
            .groupby("factor")["tags"]
            .sum()
            .reindex([LOWER, 1.0, HIGHER], fill_value=0)
        )
        won, now, lost = int(tags[LOWER] - tags[1.0]), int(tags[1.0]), int(tags[1.0] - tags[HIGHER])
        if in_class.any():
            sentences.append(
                f"floors 10 % higher take {lost} of {now} {what} away, floors 10 % lower add {won}"
            )
    return "; ".join(sentences).capitalize() + "." * bool(sentences)


def _floors(table: pd.DataFrame, factor: float) -> pd.DataFrame:
    return table.assign(floor=table["floor"] * factor)


def _controls(table: pd.DataFrame, factor: float) -> pd.DataFrame:
    """Mass against `factor` times as much: the multiple is one number for all rows."""
    return table.assign(**{name: table[name] * factor for name in ("control", "matched", "rival")})


def _margins(table: pd.DataFrame, factor: float, facts: Facts) -> pd.DataFrame:
    margin = table["beat_baseline_by"] * factor
    there = table["contested_rule_rate"].to_numpy(copy=True)
    for (name, text), rows in table.groupby(["id", "contested_text"]).indices.items():
        known = facts.get(name, {}).get(f"{text}_rules")
        if known and not np.isnan(min_margin := float(margin.iloc[rows[0]])):
            there[rows] = rule_rate(table["hit_rate"].to_numpy(float)[rows], known, min_margin)
    return table.assign(beat_baseline_by=margin, contested_rule_rate=there)
