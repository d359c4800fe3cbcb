"""Text of `why` on a head's tags: each condition with its number, each word explained once.

In short first: where the head looks, how sure that is, and what it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan

import pandas as pd

from headscope.heads import head_name
from headscope.relations.relation import TagThresholds
from headscope.statistics.columns import GENERAL, rows_of_head
from headscope.statistics.conditions import CONDITIONS, Numbers, Row, failing
from headscope.statistics.general_labels import TIMES_LABEL, distinct_tags, tag_names
from headscope.statistics.tags import (
    NARROW,
    NO_TAG,
    UNCLASSIFIED,
    UNIDENTIFIABLE,
    evidence_order,
    with_rules,
)
from headscope.statistics.wording import rule_in_words, strictest_control

NEAR_MISSES = 3
NEAR_LIFT = 0.02  # below that a relation is no near miss but noise


def explain_tags(
    evidence: pd.DataFrame,
    rules: Mapping[str, TagThresholds],
    layer: int,
    head: int,
    *,
    relation: str | None = None,
) -> str:
    """A head's findings, every tag with its conditions, then the relations that came closest.

    What a condition asks stands behind its name where the text first names it. Of a near miss the
    conditions that hold are named in one line, unless `relation` asks for it.
    """
    table = with_rules(evidence, rules)
    head_evidence = rows_of_head(table, layer, head)
    head_evidence = head_evidence.loc[evidence_order(head_evidence)]
    tagged = head_evidence[head_evidence["tagged"].astype(bool)]
    undecided = head_evidence[head_evidence["verdict"] == UNIDENTIFIABLE]
    word = UNIDENTIFIABLE if len(undecided) else UNCLASSIFIED
    names = dict.fromkeys(tag_names(tagged))
    lines = [f"{head_name(layer, head)}: " + (", ".join(names) or word)]
    near = head_evidence.drop([*tagged.index, *undecided.index])
    if relation is None:
        near = near[(near["lift"] > NEAR_LIFT) & near["ci_low"].notna()].head(NEAR_MISSES)
    else:
        tagged, undecided, near = (
            rows[rows["id"].str.contains(relation, regex=False)]
            for rows in (tagged, undecided, near)
        )
    is_narrow = near["verdict"] == NARROW
    explained = pd.concat([tagged, undecided, near])
    if len(explained):
        lines += ["", "In short:", *(f"  {line}" for line in findings(explained, rules))]
    known: set[str] = set()
    for title, rows in (
        ("", tagged),
        ("Not identifiable:", undecided),
        (f"{NARROW.capitalize()}:", near[is_narrow]),
        (f"{NO_TAG.capitalize()}:", near[~is_narrow]),
    ):
        lines += ["", title] if title and len(rows) else []
        for row in rows.to_dict("records"):
            is_brief = title != "" and relation is None
            lines += ["", *_account(row, rules, known, is_brief=is_brief)]
    if not len(explained):
        lines += [
            "",
            f"{NO_TAG.capitalize()} nothing: of no relation is the lift above {NEAR_LIFT}.",
        ]
    return "\n".join(lines)


def _accuracy(row: Row) -> list[str]:
    """Hit rate of the head and of the best simple rule; none if no rule is to be beaten."""
    if not row["baseline"] or isnan(row["baseline_rate"]):
        return []
    line = (
        f"  right, by its strongest attention, at {row['hit_rate']:.0%} of its queries; "
        f"“{rule_in_words(row['baseline'])}” at {row['baseline_rate']:.0%}"
    )
    is_behind = row["hit_rate"] < row["baseline_rate"]
    return [line + ": less often than that rule" * is_behind]


def _general(row: Row, known: set[str]) -> list[str]:
    """The general label of a tag that is not specific, and where it is first named what it says."""
    if not row[GENERAL]:
        return []
    means = (
        " (labels that the head does not tell apart: a tag names one of them only where its lift "
        f"is surely larger than every other's, and {TIMES_LABEL:g} times as large)"
    )
    line = f"  general{means * (GENERAL not in known)}: {row[GENERAL]}"
    known.add(GENERAL)
    return [line]


def _account(
    row: Row, rules: Mapping[str, TagThresholds], known: set[str], *, is_brief: bool
) -> Sequence[str]:
    """One relation; what is explained in it joins what is known.

    Briefly, the conditions that hold are named in one line, and those that fail have their numbers.
    """
    rule, numbers = rules[row["id"]], Numbers(row)
    is_first = not known
    head = (
        f"{row['id']}: {row['mass']:.3f} of its attention on {rule.meaning}; "
        f"control {row['control']:.3f}{' (its attention on control keys)' * is_first}, "
        f"chance {row['chance']:.3f}{' (were its attention spread evenly)' * is_first}"
    )
    lines, holding = [], []
    for condition in CONDITIONS:
        if not condition.is_asked(row):
            continue
        fails = bool(condition.fails(numbers)[0])
        if is_brief and not fails:
            holding.append(condition.name)
            continue
        means = "" if condition.name in known else f" ({condition.means})"
        known.add(condition.name)
        holds = "no " if fails else "yes"
        numbers_in_words = condition.account(row) if fails else condition.say(row)
        lines.append(f"  {holds} {condition.name}{means}: {numbers_in_words}")
    if holding:
        lines.append(f"  these hold: {', '.join(holding)}")
    floor = f"  why the floor is {rule.floor:g}: {rule.source}"
    source = [] if floor in known else [floor]
    known.add(floor)
    return [head, *_general(row, known), *_accuracy(row), *lines, *source]


MOST_TAGS = 3
_VERDICTS = {NARROW: "Narrowly refused", UNIDENTIFIABLE: "Not identifiable"}


def findings(rows: pd.DataFrame, rules: Mapping[str, TagThresholds]) -> list[str]:
    """A sentence or two on each of a head's strongest tags; without a tag, on what is closest."""
    meanings = rows["id"].map(lambda name: rules[name].meaning)
    rows = rows.assign(meaning=meanings)
    tagged = distinct_tags(rows)
    if tagged.empty:
        return [_refusal(row) for row in rows.head(1).to_dict("records")]
    lines = [_tag(row) for row in tagged.head(MOST_TAGS).to_dict("records")]
    others = len(tagged) - MOST_TAGS
    return lines + [f"Tags besides, below: {others}."] * (others > 0)


def _tag(row: Row) -> str:
    sentences = [_masses(row), _beside_heuristic(row)]
    if pd.notna(row["confirmed"]) and row["confirmed"]:
        sentences.append("Each half of the text gives this tag by itself.")
    general = f", general {row[GENERAL]}" * bool(row[GENERAL])
    return f"{row['id']}{general}: " + " ".join(filter(None, sentences))


def _refusal(row: Row) -> str:
    """The relation that a head without a tag comes closest to, and what it fails there."""
    failed = failing(row)
    verdict = _VERDICTS.get(str(row["verdict"]), "No tag")
    if len(failed) == 1:
        verdict += f": {failed[0].account(row)}"
    elif failed:
        verdict += f": it fails {', '.join(condition.name for condition in failed)}"
    sentences = [_masses(row), _beside_heuristic(row), f"{verdict}."]
    return f"{row['id']}: " + " ".join(filter(None, sentences))


def _masses(row: Row) -> str:
    control, keys = strictest_control(row)
    return f"{row['mass']:.2f} of its attention is on {row['meaning']}, {control:.2f} on {keys}."


def _beside_heuristic(row: Row) -> str:
    """Hit rates of the head and the best simple rule; empty if no rule is to be beaten."""
    if not row["baseline"] or isnan(row["baseline_rate"]) or isnan(row["hit_rate"]):
        return ""
    line = (
        f"It is right at {row['hit_rate']:.0%} of {row['n']:,} queries (the simple rule "
        f"“{rule_in_words(row['baseline'])}”: {row['baseline_rate']:.0%})."
    )
    if isnan(row["contested_hit_rate"]) or not row["contested_n"]:
        return line
    return (
        f"{line} Where that rule is wrong, at {row['contested_n']:.0f} contested queries, the head "
        f"is right at {row['contested_hit_rate']:.0%}."
    )
