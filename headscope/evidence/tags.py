"""From evidence to tags: a condition is a row, so that tags and near misses can say why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from headscope.evidence.columns import HEAD_COLUMNS
from headscope.heads import head_name
from headscope.relations.relation import MIN_QUERIES, Rule

MAX_Q = 0.01
TIMES_CONTROL = 1.5
"""Least mass in units of the control. A lift can be sure and still be small: a head that puts
0.31 on prepositions that belong to its noun and 0.25 on others at the same distance is a head
for prepositions."""
SINK = "delimiter/first-token"
UNCLASSIFIED = "unclassified"

_NUMBERS = ("control", "lift", "ci_low", "ci_high", "q_value")


@dataclass(frozen=True)
class Condition:
    """One thing that a tag asks for. `holds` is vectorised over rows, `say` speaks of one row."""

    name: str
    holds: Callable[[pd.DataFrame], pd.Series]
    say: Callable[[pd.Series], str]


CONDITIONS = (
    Condition(
        "queries",
        lambda t: t["taggable"] & (t["n"] >= MIN_QUERIES),
        lambda r: f"{r['n']} queries, needs {MIN_QUERIES}" if r["taggable"] else "reported only",
    ),
    Condition(
        "mass",
        lambda t: t["mass"] >= t["floor"],
        lambda r: f"mass {r['mass']:.3f}, floor {r['floor']:g}",
    ),
    Condition(
        "interval",
        lambda t: t["ci_low"] > 0,
        lambda r: f"lift {r['lift']:.3f} [{r['ci_low']:.3f}, {r['ci_high']:.3f}], must lie above 0",
    ),
    Condition(
        "q value",
        lambda t: t["q_value"] < MAX_Q,
        lambda r: f"q {r['q_value']:.2g}, must be below {MAX_Q:g}",
    ),
    Condition(
        "control",
        lambda t: t["mass"] >= TIMES_CONTROL * t["control"],
        lambda r: f"mass {r['mass']:.3f}, {TIMES_CONTROL:g} × control {r['control']:.3f}",
    ),
    Condition(
        "best simple rule",
        lambda t: ~(t["hit_rate"] < t["best_offset_rate"] + t["beat_baseline_by"]),
        lambda r: (
            f"hit rate {r['hit_rate']:.3f}, best simple rule {r['best_offset_rate']:.3f} "
            f"+ {r['beat_baseline_by']:.2f}"
        ),
    ),
    Condition(
        "chance",
        lambda t: ~(t["mass"] < t["times_chance"] * t["chance"]),
        lambda r: f"mass {r['mass']:.3f}, {r['times_chance']:g} × chance {r['chance']:.3f}",
    ),
    Condition(
        "companion",
        lambda t: ~(t["companion_mass"] < t["floor"]),
        lambda r: f"mass {r['companion_mass']:.3f} for {r['companion']}, floor {r['floor']:g}",
    ),
    Condition(
        "twin",
        lambda t: ~(t["lift"] <= t["twin_p999"]),
        lambda r: f"lift {r['lift']:.3f}, shuffled twin's 99.9th percentile {r['twin_p999']:.3f}",
    ),
)
"""A condition whose number is missing (no such threshold, not measured) is not asked for, but the
first five always are."""


def asked_for(row: pd.Series, condition: Condition) -> bool:
    """Whether the condition applies to this row at all."""
    column = _OPTIONAL.get(condition.name)
    return column is None or bool(pd.notna(row[column]))


_OPTIONAL = {
    "best simple rule": "beat_baseline_by",
    "chance": "times_chance",
    "companion": "companion_mass",
    "twin": "twin_p999",
}


def with_rules(evidence: pd.DataFrame, rules: Mapping[str, Rule]) -> pd.DataFrame:
    """The evidence with each relation's thresholds beside it, and its full name as `id`."""
    table = evidence.reset_index(drop=True)
    table["id"] = table["type"] + "/" + table["relation"]
    for name in ("floor", "beat_baseline_by", "times_chance"):
        values = {key: getattr(rule, name) for key, rule in rules.items()}
        table[name] = table["id"].map(values).astype(float)
    table["taggable"] = table["id"].map({key: rule.taggable for key, rule in rules.items()})
    table["companion"] = table["id"].map({key: rule.companion for key, rule in rules.items()})
    key = ["layer", "head", "id"]
    masses = table.set_index(key)["mass"]
    asked = pd.MultiIndex.from_frame(table[["layer", "head", "companion"]])
    table["companion_mass"] = masses.reindex(asked).to_numpy()
    return table


def failures(table: pd.DataFrame) -> pd.DataFrame:
    """For each row of `with_rules`, a column per condition: True where it fails."""
    return pd.DataFrame({c.name: ~c.holds(table).astype(bool) for c in CONDITIONS})


def tag(evidence: pd.DataFrame, rules: Mapping[str, Rule]) -> pd.Series:
    """The `tagged` column: every condition holds."""
    if evidence.empty:
        return pd.Series([], dtype=bool)
    return ~failures(with_rules(evidence, rules)).any(axis=1)


def head_table(
    evidence: pd.DataFrame, rules: Mapping[str, Rule], profile: pd.DataFrame, kv_group_size: int
) -> pd.DataFrame:
    """A row per head: its tags, the strongest with its numbers, its profile and the reason.

    `primary` is the tag with the largest lift, except that the first token is primary only for
    a head that earned nothing else; a head without a tag is `unclassified`, and its numbers are
    those of the relation that came closest.
    """
    table = with_rules(evidence, rules)
    failed = failures(table).sum(axis=1)
    rank = pd.DataFrame(
        {
            "failed": failed.to_numpy(),
            "sink": (table["id"] == SINK) & (failed == 0),
            "lift": -table["lift"].to_numpy(),
        }
    )
    best_first = rank.sort_values(["failed", "sink", "lift"], kind="stable").index
    rows = []
    for (layer, head), own in table.loc[best_first].groupby(["layer", "head"], sort=True):
        tagged = own[own["tagged"].astype(bool)]
        best = own.iloc[0]
        rows.append(
            {
                "layer": layer,
                "head": head,
                "primary": best["type"] if len(tagged) else UNCLASSIFIED,
                "tags": ";".join(dict.fromkeys(tagged["type"])),
                "relation": best["relation"],
                "score": best["mass"],
                "mass": best["mass"],
                "reason": reason(best, rules),
                "kv_group": head // kv_group_size,
                **{name: best[name] for name in _NUMBERS},
            }
        )
    heads = pd.DataFrame(rows).merge(profile, on=["layer", "head"])
    return heads[HEAD_COLUMNS]


def countable_types(evidence: pd.DataFrame, rules: Mapping[str, Rule]) -> list[str]:
    """The types that a head could have earned here, in the order of the evidence.

    Those with enough queries and blocks for at least one relation that gives a tag. A count of
    heads of another type would be 0 without anything having been measured.
    """
    if evidence.empty:
        return []
    table = with_rules(evidence, rules)
    able = CONDITIONS[0].holds(table) & table["ci_low"].notna()
    return [str(name) for name in table.loc[able, "type"].unique()]


def reason(row: pd.Series, rules: Mapping[str, Rule]) -> str:
    """One sentence: what the head does with which numbers, and for a near miss what failed."""
    meaning = rules[row["id"]].meaning
    numbers = (
        f"{row['mass']:.2f} of its attention on {meaning} (control {row['control']:.2f}, "
        f"lift {row['lift']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}], "
        f"q {row['q_value']:.1g}, n {row['n']})"
    )
    if row["tagged"]:
        return f"{row['id']}: {numbers}"
    failing = [c.say(row) for c in CONDITIONS if not bool(c.holds(row.to_frame().T).iloc[0])]
    return f"closest to {row['id']}: {numbers}; fails: {'; '.join(failing)}"


def explain(evidence: pd.DataFrame, rules: Mapping[str, Rule], layer: int, head: int) -> str:
    """Every tag of a head with its conditions, then the relations that came closest."""
    table = with_rules(evidence, rules)
    own = table[(table["layer"] == layer) & (table["head"] == head)].copy()
    own["failed"] = failures(own).sum(axis=1)
    own["sink"] = own["id"] == SINK
    own = own.sort_values(["failed", "sink", "lift"], ascending=[True, True, False])
    tagged, rest = own[own["failed"] == 0], own[own["failed"] > 0]
    lines = [f"{head_name(layer, head)}: " + (", ".join(tagged["id"]) or UNCLASSIFIED)]
    for _, row in tagged.iterrows():
        lines += ["", *_account(row, rules)]
    near = rest[rest["lift"] > NEAR_LIFT].head(NEAR_MISSES)
    if len(near):
        lines += ["", "Closest without a tag:"]
        for _, row in near.iterrows():
            lines += ["", *_account(row, rules)]
    return "\n".join(lines)


NEAR_MISSES = 3
NEAR_LIFT = 0.02  # below that a relation is no near miss but noise


def _account(row: pd.Series, rules: Mapping[str, Rule]) -> Sequence[str]:
    one = row.to_frame().T.infer_objects()
    verdicts = [
        f"  {'yes' if bool(c.holds(one).iloc[0]) else 'no ':3} {c.name}: {c.say(row)}"
        for c in CONDITIONS
        if asked_for(row, c)
    ]
    rule = rules[row["id"]]
    head = (
        f"{row['id']}: {row['mass']:.3f} of its attention on {rule.meaning}; "
        f"control {row['control']:.3f}, chance {row['chance']:.3f}"
    )
    floor = f"  floor {rule.floor:g}: {rule.source}"
    return [head, *verdicts, floor]
