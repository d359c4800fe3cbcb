"""An account of a head: its tags, every condition with its number, near misses, causes, examples.

The sentences are those of `headscope.statistics.in_words`; here they are chosen and put in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from headscope.heads import head_name
from headscope.measure.example import Example
from headscope.relations.relation import Threshold
from headscope.statistics.columns import PRELIMINARY, rows_of_head
from headscope.statistics.head_lists import partial_sinks, undecided
from headscope.statistics.in_words import (
    Accounts,
    causes_in_words,
    direct_effects_in_words,
    feature_model_in_words,
    findings,
    partial_sink_in_words,
)
from headscope.statistics.reasons import (
    NEAR_LIFT,
    check_relation,
    effects_to_report,
    explained_by,
    head_in,
    rows_to_report,
)
from headscope.statistics.result import Result
from headscope.statistics.tags import INCONCLUSIVE, NO_TAG


def account(result: Result, head: str | tuple[int, int], relation: str | None = None) -> str:
    """Findings on a head, every condition of each tag with its number, then the near misses.

    Args:
        result: a run's data.
        head: `L5H1`, `5.1` or `(5, 1)`.
        relation: part of a relation's name, such as `amod`: the head's conditions for those alone,
            tagged or not.

    Raises:
        RunError: the run has no such head, or no such relation.
    """
    layer, number = head_in(result, head)
    if relation is not None:
        check_relation(result, relation)
    evidence = result.evidence_with_thresholds
    tags_explained = explain_tags(evidence, result.thresholds, layer, number, relation=relation)
    name, _, conditions = tags_explained.partition("\n\n")
    if result.preliminary:
        name = f"{name} ({PRELIMINARY})\n{result.preliminary}."
    if relation is not None:
        return "\n\n".join(filter(None, [name, conditions]))

    # what the text cannot decide comes before the conditions, and a partial sink after them
    paragraphs = [name]
    undecided_heads = undecided(result.heads, evidence)
    label = head_name(layer, number)
    if label in undecided_heads.index:
        row = undecided_heads.loc[label]
        paragraphs.append(f"Not identifiable: {row['description']}: {row['why']}.")
    paragraphs.append(conditions)
    sinks = rows_of_head(partial_sinks(evidence), layer, number)
    paragraphs += [partial_sink_in_words(row) for row in sinks.to_dict("records")]

    # the feature model, and tags that another feature explains
    of_head = rows_of_head(result.evidence, layer, number)
    tagged = of_head[of_head["tagged"].astype(bool)]
    tags = (tagged["type"] + "/" + tagged["relation"]).tolist()
    models = result.feature_models
    if models is not None:
        lines = feature_model_in_words(models, result.heads, layer, number)
        for tag, feature in explained_by(models, layer, number, tags):
            lines.append(f"{tag} has no unique bits: explained by {feature}")
        paragraphs.append(_listed("Feature model:", lines))

    # what the head writes, and what its removal does
    if result.effects is None:
        effects = ["not measured: run headscope classify --direct-effects"]
    else:
        records = result.info.get("effects", {})
        effects = direct_effect_lines(result.effects, records, layer, number)
    paragraphs.append(_listed("Direct effects:", effects))
    if result.causes is not None:
        paragraphs.append(_listed("Causes:", causes_in_words(result.causes, layer, number)))

    # examples of largest, middling and smallest mass of each relation
    of_relation: dict[str, list[Example]] = {}
    for example in result.examples:
        is_of_head = (example.layer, example.head) == (layer, number)
        if is_of_head and example.relation:
            of_relation.setdefault(example.relation, []).append(example)
    lines = []
    for examples in of_relation.values():
        ordered = sorted(examples, key=lambda example: -example.mass)
        ranks = sorted({0, len(ordered) // 2, len(ordered) - 1})
        lines += [str(ordered[rank]) for rank in ranks]
    title = [
        "Examples: a query of the best tenth (decile), of the middle and of the worst tenth, with "
        "their mass; the report has more:"
    ]
    if not tags:
        title.append(
            "The head has no tag: these are queries of its taggable relation with the largest lift."
        )
    title.append(
        "[[query]], «target», … omitted tokens; 30: position of the next token; elsewhere: "
        "attention on tokens not shown"
    )
    paragraphs.append(_listed("\n".join(title), lines))
    return "\n\n".join(filter(None, paragraphs))


def explain_tags(
    table: pd.DataFrame,
    thresholds: Mapping[str, Threshold],
    layer: int,
    head: int,
    *,
    relation: str | None = None,
) -> str:
    """A head's findings, every tag with its conditions, then the relations that came closest.

    What a condition asks stands behind its name where the text first names it. Of a near miss the
    conditions that hold are named in one line, unless `relation` asks for it.
    """
    # a head's name and types first, then everything in short
    rows = rows_to_report(table, layer, head, relation)
    paragraphs = [f"{head_name(layer, head)}: {', '.join(rows.names)}"]
    if rows.all.empty:
        paragraphs.append(f"No tag: no relation has a lift above {NEAR_LIFT}.")
    else:
        paragraphs.append(_listed("In short:", findings(rows.all, thresholds)))
    # every tag with its conditions; each is explained where the text first names it
    accounts = Accounts(thresholds)
    paragraphs += accounts.of(rows.tagged)
    # what came closest, from the least decided to what was refused
    near_misses = {
        "Not identifiable": rows.undecided,
        INCONCLUSIVE.capitalize(): rows.inconclusive,
        NO_TAG.capitalize(): rows.rejected,
    }
    for title, rows_of_section in near_misses.items():
        if len(rows_of_section):
            paragraphs.append(f"{title}:")
            paragraphs += accounts.of(rows_of_section, is_brief=relation is None)
    return "\n\n".join(paragraphs)


def _listed(title: str, lines: list[str]) -> str:
    if not lines:
        return ""
    return "\n".join([title, *(f"  {line}" for line in lines)])


def direct_effect_lines(
    effects: pd.DataFrame, records: Mapping[str, Mapping[str, Any]], layer: int, head: int
) -> list[str]:
    """Sentences on a head's direct effects: its tags, then the effects nearest to one.

    Args:
        effects: the table of direct effects.
        records: entries of `run.json` for the effects, by their full names.
        layer: the head's layer.
        head: the head's number.
    """
    of_head = effects_to_report(effects, records, layer, head)
    return direct_effects_in_words(of_head, records) or ["none near a tag"]
