"""Why a head has its tags: every condition with its number, near misses, causes and examples.

Last the sentences about a head's rule, and about its tags: those that stand by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from headscope.errors import RunError
from headscope.heads import head_name, parse_head, without_softmax
from headscope.measure.example import Example
from headscope.relations.effect import WRITES
from headscope.statistics.causes import cause_lines
from headscope.statistics.columns import rows_of_head, strongest_effects_first
from headscope.statistics.conditions import BESIDE_LIFT, CONDITIONS
from headscope.statistics.explain_tags import explain_tags
from headscope.statistics.head_lists import partial_sink_line, undecided
from headscope.statistics.result import PRELIMINARY, Result, layers_of

MIN_UNIQUE = 0.005
"""The least share of a head's bits that is some: less is within what a refit moves."""
MAX_TERMS = 5
MAX_NEAR_EFFECTS = 3
"""Effects without a tag that are shown of a head."""
NEAR_EFFECT = 0.5
"""Share of the floor below which an effect is no near miss."""
_PLAIN = ("positional/", "sink/", "delimiter/", "induction/")
_MARKS = (
    "[[query]], «target», … left out; 30: the position of the token that follows; elsewhere: the "
    "attention on tokens not shown"
)


def why(result: Result, head: str, relation: str | None = None) -> str:
    """Findings on a head, every condition of each tag with its number, then the near misses.

    Args:
        result: a run's data.
        head: `L5H1` or `5.1`.
        relation: part of a relation's name, such as `amod`: the head's conditions for those alone,
            tagged or not.

    Raises:
        RunError: the run has no such head, or no such relation.
    """
    layer, number = head_in(result, head)
    label = head_name(layer, number)
    written = result.info.get("effects", {})
    causes = [] if result.causes is None else cause_lines(result.causes, layer, number)
    if relation is not None:
        check_relation(result, relation)
    account = explain_tags(result.evidence, result.rules, layer, number, relation=relation)
    name, _, conditions = account.partition("\n\n")
    if result.preliminary:
        name = f"{name} ({PRELIMINARY})\n{result.preliminary}."
    if relation is not None:
        return "\n\n".join(filter(None, [name, conditions]))
    parts = [
        name,
        _undecided(result, label),
        conditions,
        partial_sink_line(result.evidence, result.rules, layer, number),
        _unsure(result, layer, number),
        _listed("Rule:", _rule(result, layer, number)),
        _listed("Writes:", write_lines(result.effects, written, layer, number)),
        _listed("Causes:", causes),
        _listed(_examples_title(result, layer, number), _examples(result, layer, number)),
    ]
    return "\n\n".join(filter(None, parts))


def head_in(result: Result, head: str) -> tuple[int, int]:
    """Layer and number of a head of a run, by its name.

    Raises:
        RunError: the run has no such head.
        HeadscopeError: it is no name of a head.
    """
    layer, number = parse_head(head)
    heads, label = result.heads, head_name(layer, number)
    if not ((heads["layer"] == layer) & (heads["head"] == number)).any():
        others = sorted({*range(int(heads["layer"].max()) + 1)} - {*layers_of(result)})
        if layer in others:
            raise RunError(f"no head {label} in this run: {without_softmax(others)}")
        last = head_name(int(heads["layer"].max()), int(heads["head"].max()))
        raise RunError(f"no head {label} in this run; they go up to {last}")
    return layer, number


def check_relation(result: Result, relation: str) -> None:
    """Refuse a part of a name that no relation of the run has."""
    names = (result.evidence["type"] + "/" + result.evidence["relation"]).unique().tolist()
    if not any(relation in name for name in names):  # pandas takes no text that is not UTF-8
        listed = ", ".join(names[:3])
        raise RunError(f"no relation of this run has {relation!r} in its name, as {listed} have")


def _undecided(result: Result, name: str) -> str:
    undecided_heads = undecided(result.heads, result.evidence)
    if name not in undecided_heads.index:
        return ""
    row = undecided_heads.loc[name]
    return f"Not identifiable: {row['said']}: {row['why']}."


def _rule(result: Result, layer: int, head: int) -> list[str]:
    """The head's rule, and which of its tags have no bits of their own in it."""
    if result.accounts is None:
        return []
    lines = account_lines(result.accounts, result.heads, layer, head)
    explanations = explained_by(result.accounts, layer, head, _tags(result, layer, head))
    return lines + [f"{tag} has no unique bits: explained by {name}" for tag, name in explanations]


def _unsure(result: Result, layer: int, head: int) -> str:
    unsure = [name for name in _tags(result, layer, head) if result.unsure(name)]
    if not unsure:
        return ""
    return f"Unreliable in this run (two halves of the corpus disagree): {', '.join(unsure)}"


def _examples(result: Result, layer: int, head: int) -> list[str]:
    """Examples of largest, middling and smallest mass of each relation."""
    of_relation: dict[str, list[Example]] = {}
    for example in result.examples:
        if (example.layer, example.head) == (layer, head) and example.relation:
            of_relation.setdefault(example.relation, []).append(example)
    lines = []
    for examples in of_relation.values():
        ordered = sorted(examples, key=lambda example: -example.mass)
        ranks = sorted({0, len(ordered) // 2, len(ordered) - 1})
        lines += [str(ordered[rank]) for rank in ranks]
    return lines


def _examples_title(result: Result, layer: int, head: int) -> str:
    """Title that says what the lines below it are, and how they are marked."""
    title = (
        "Examples: a query of the best tenth (decile), a middling one and one of the worst, with "
        "their mass; the report has more:"
    )
    bare = "It has no tag: they are of the relation of largest lift that it could have one by."
    return "\n".join([title, *([] if _tags(result, layer, head) else [bare]), _MARKS])


def _tags(result: Result, layer: int, head: int) -> list[str]:
    """Full names of the relations that a head is tagged with."""
    evidence = rows_of_head(result.evidence, layer, head)
    tagged = evidence[evidence["tagged"].astype(bool)]
    names: list[str] = (tagged["type"] + "/" + tagged["relation"]).tolist()
    return names


def _listed(title: str, lines: list[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)]) if lines else ""


def account_lines(accounts: pd.DataFrame, heads: pd.DataFrame, layer: int, head: int) -> list[str]:
    """A head's rule in words, what it explains, and its features."""
    account = rows_of_head(heads, layer, head).iloc[0]
    lines = [
        f"{account['rule']}",
        f"explains {account['explained']:.0%} of its bits above even attention",
    ]
    terms = rows_of_head(accounts, layer, head)
    for row in terms.head(MAX_TERMS).itertuples():
        at = f" on a {row.queries}" if row.queries else ""
        lines.append(f"{row.feature}{at}: weight {row.weight:+.2f}, {row.unique:.1%} unique bits")
    return lines


def explained_by(
    accounts: pd.DataFrame, layer: int, head: int, tags: list[str]
) -> list[tuple[str, str]]:
    """Tags whose relation has no bits of its own, each with the feature that has most instead.

    A relation that stands in the rule with unique bits stands by itself. Positions, the first token
    and delimiters are features under names of their own and are not asked here.
    """
    terms = rows_of_head(accounts, layer, head)
    if terms.empty:
        return []
    alone = set(terms.loc[(terms["unique"] >= MIN_UNIQUE) & (terms["weight"] > 0), "feature"])
    instead = terms.loc[terms["weight"] > 0, "feature"]
    words = [tag for tag in tags if not tag.startswith(_PLAIN)]
    return [(tag, str(instead.iloc[0])) for tag in words if tag not in alone and len(instead)]


def write_lines(
    effects: pd.DataFrame | None, facts: Mapping[str, Mapping[str, Any]], layer: int, head: int
) -> list[str]:
    """Sentences on what a head writes: its tags, then what came near one."""
    if effects is None:
        return [
            "not measured: headscope classify --writes measures what a head adds to the model's "
            "predictions"
        ]
    head_effects = rows_of_head(effects, layer, head)
    head_effects = head_effects.loc[strongest_effects_first(head_effects)]
    tagged = head_effects[head_effects["tagged"].astype(bool)]
    other = head_effects.drop(tagged.index)
    ids = f"{WRITES}/" + other["type"] + "/" + other["effect"]
    sign = ids.map({k: v["sign"] for k, v in facts.items()})
    near = other[other["lift"] * sign.astype(float) >= NEAR_EFFECT * other["floor"]].head(
        MAX_NEAR_EFFECTS
    )
    lines = [_write_line(row, facts, "") for row in tagged.to_dict("records")]
    lines += [_write_line(row, facts, "no tag: ") for row in near.to_dict("records")]
    return lines or ["nothing that was asked for"]


def _write_line(row: dict[Any, Any], facts: Mapping[str, Mapping[str, Any]], before: str) -> str:
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
