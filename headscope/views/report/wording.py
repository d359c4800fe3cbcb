"""Relations and heads in words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pandas as pd

from headscope.measure.example import Example
from headscope.relations import head_types
from headscope.relations.dependents import DEPENDENTS, governor_of
from headscope.statistics.columns import GENERAL
from headscope.statistics.head_lists import partial_sinks
from headscope.statistics.in_words import condition_results, partial_sink_in_words
from headscope.statistics.result import Result
from headscope.statistics.tag_counts import TagCounts
from headscope.views.head_account import direct_effect_lines

# after https://universaldependencies.org/u/pos/
_CLASSES = {
    "ADJ": "adjective",
    "ADP": "preposition",
    "ADV": "adverb",
    "AUX": "auxiliary verb",
    "CCONJ": "coordinating conjunction",
    "DET": "determiner",
    "NOUN": "noun",
    "NUM": "number",
    "PART": "particle",
    "PRON": "pronoun",
    "PROPN": "name",
    "SCONJ": "subordinating conjunction",
    "VERB": "verb",
}


def relation_label(relation: str, meaning: str) -> str:
    """A relation's name in words; its meaning if it is not syntactic.

    >>> relation_label("syntactic/aux:pass:head>dep", "…")
    'verb → its passive auxiliary'
    >>> relation_label("syntactic/obj:dep>head", "…")
    'object → its verb'
    >>> relation_label("sink/first-token", "the first token")
    'the first token'
    """
    without_part = relation.partition("@")[0]
    kind, _, name = without_part.partition("/")
    deprel, _, direction = name.rpartition(":")
    if kind != "syntactic" or deprel not in DEPENDENTS:
        return in_words(meaning)
    dependent = DEPENDENTS[deprel]
    governor = governor_of(deprel)
    if direction == "head>dep":
        return f"{governor} → its {dependent}"
    return f"{dependent} → its {governor}"


def in_words(meaning: str) -> str:
    """A relation's meaning with word classes spelled out.

    >>> in_words("the nearest earlier CCONJ")
    'the nearest earlier coordinating conjunction'
    """
    return re.sub(r"\b[A-Z]{3,5}\b", lambda tag: _CLASSES.get(tag[0], tag[0]), meaning)


def types_in_words(names: Collection[str]) -> list[dict[str, Any]]:
    """Head types of a run, with their letters and the keys that they attend to."""
    return [
        {
            "name": kind.name,
            "letter": kind.letter,
            "sink": not kind.functional,
            "looks_at": kind.looks_at,
            "control_keys": kind.control_keys,
        }
        for kind in head_types().values()
        if (kind.relations and not kind.on_request) or kind.name in names
    ]


def instances_of(examples: Iterable[Example]) -> dict[str, list[str]]:
    """The query and a target of each relation's example with the largest mass."""
    best: dict[str, Example] = {}
    for example in examples:
        if example.query < 0 or not example.targets:
            continue
        before = best.get(example.relation)
        if example.mass > (before.mass if before else -1.0):
            best[example.relation] = example
    instances = {}
    for relation, example in best.items():
        query = example.tokens[example.query]
        target = example.tokens[example.targets[-1]]
        instances[relation] = [query, target]
    return instances


def threshold_sensitivity(counts: Mapping[str, TagCounts]) -> str:
    """Sentence on the tags lost if thresholds are a tenth higher, and added if they are a tenth
    lower; empty if there are no tags.
    """
    changes = []
    for noun, count in counts.items():
        lost = count.now - count.higher
        added = count.lower - count.now
        changes.append(
            f"thresholds 10 % higher take {lost:,} of {count.now:,} {noun} away, thresholds 10 % "
            f"lower add {added:,}"
        )
    sentence = "; ".join(changes)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""


def lines_of_heads(run: Result) -> dict[tuple[int, int], list[str]]:
    """The lines of each head: general labels, partial sinks, effects and feature model.

    Args:
        run: a run, optionally with `effects` (direct effects) and `feature_models`.

    Returns:
        By layer and head.
    """
    sinks = {}
    for row in partial_sinks(run.evidence_with_thresholds).to_dict("records"):
        sinks[row["layer"], row["head"]] = partial_sink_in_words(row)
    is_tagged = run.evidence["tagged"].astype(bool)
    # each general label once, by layer and head
    labels = run.evidence[is_tagged][["layer", "head", "type", GENERAL]].drop_duplicates()
    general: dict[tuple[int, int], list[str]] = defaultdict(list)
    for layer, head, kind, label in labels.to_numpy().tolist():
        if pd.isna(label) or not label:
            continue
        sentence = f"General tag {kind}/{label}: the head does not separate these labels."
        general[layer, head].append(sentence)
    sentences: dict[tuple[int, int], list[str]] = {}
    # general labels, sinks, effects and the feature model, as far as the run has them
    for row in run.heads.to_dict("records"):
        key = row["layer"], row["head"]
        lines = list(general.get(key, ()))
        if key in sinks:
            lines.append(sinks[key])
        if run.effects is not None:
            effects = direct_effect_lines(run.effects, run.info.get("effects", {}), *key)
            lines += [f"Direct effect: {line}." for line in effects]
        if run.feature_models is not None and pd.notna(row.get("explained")):
            explained = f"explains {row['explained']:.0%} of its bits"
            lines.append(f"Feature model ({explained}): {row['feature_model']}")
        sentences[key] = lines
    return sentences


def ladders(run: Result) -> list[dict[str, Any]]:
    """Relations that each head has a tag by or is shown by, with their conditions.

    A condition is its name, what it says of the head, and whether it holds.
    """
    examples_of = {(e.layer, e.head, e.relation) for e in run.examples if e.relation}
    # of all rows: some conditions are of another's
    table = run.evidence_with_thresholds
    places = zip(table["layer"].tolist(), table["head"].tolist(), table["id"], strict=True)
    with_examples = pd.Series(
        [row_id in examples_of for row_id in places], index=table.index, dtype=bool
    )
    table = table[with_examples | table["tagged"].astype(bool)]
    if table.empty:
        return []
    # what a head is best known for stands first
    table = table.sort_values(["tagged", "lift"], ascending=False, kind="stable")
    rows = []
    for row, results in zip(table.to_dict("records"), condition_results(table), strict=True):
        steps = [[result.condition.name, result.numbers, int(result.holds)] for result in results]
        rows.append(
            {
                "layer": int(row["layer"]),
                "head": int(row["head"]),
                "relation": row["id"],
                "steps": steps,
            }
        )
    return rows
