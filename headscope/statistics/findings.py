"""Findings on a head in a few sentences: where it looks, how sure that is, and what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan

import pandas as pd

from headscope.relations.relation import TagThresholds
from headscope.statistics.columns import GENERAL
from headscope.statistics.conditions import CONDITIONS, Row
from headscope.statistics.general_labels import distinct_tags
from headscope.statistics.heuristic_words import rule_in_words
from headscope.statistics.tags import NARROW, UNIDENTIFIABLE

MOST_TAGS = 3
_VERDICTS = {NARROW: "Narrowly refused", UNIDENTIFIABLE: "Not identifiable"}


def findings(rows: pd.DataFrame, rules: Mapping[str, TagThresholds]) -> list[str]:
    """A sentence or two on each of a head's strongest tags; without a tag, on what is closest.

    Args:
        rows: a head's rows of `headscope.statistics.tags.with_rules`, the most telling first.
        rules: what each relation asks for, by its full name.
    """
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
    table = pd.DataFrame([row])
    failed = [c for c in CONDITIONS if c.is_asked(row) and c.fails(table).iloc[0]]
    verdict = _VERDICTS.get(str(row["verdict"]), "No tag")
    if len(failed) == 1:
        verdict += f": {failed[0].account(row, fails=True)}"
    elif failed:
        verdict += f": it fails {', '.join(condition.name for condition in failed)}"
    sentences = [_masses(row), _beside_heuristic(row), f"{verdict}."]
    return f"{row['id']}: " + " ".join(filter(None, sentences))


def _masses(row: Row) -> str:
    return (
        f"{row['mass']:.2f} of its attention is on {row['meaning']}, {row['control']:.2f} on keys "
        "that a simpler habit would look at as often (control)."
    )


def _beside_heuristic(row: Row) -> str:
    """How often the head and the best simple rule are right; empty where none is to be beaten."""
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
