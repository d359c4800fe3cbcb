"""An account of a head: its tags, every condition with its number, near misses, causes, examples.

`explain_tags` explains each word once, and says in short first where the head looks, how sure that
is, and what it lacks. `why` adds what else a run knows of the head. The sentences are templates of
`headscope.views.prose`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from math import isnan
from typing import Any

import pandas as pd

from headscope.heads import head_name
from headscope.measure.example import Example
from headscope.relations.effects import WRITES
from headscope.relations.relation import Threshold
from headscope.statistics.causes import AWAY, BEHAVIOURS, NEAR, directions
from headscope.statistics.cautions import preliminary_in_words
from headscope.statistics.columns import PRELIMINARY, rows_of_head
from headscope.statistics.conditions import Row, failing
from headscope.statistics.general_labels import TIMES_LABEL, distinct_tags
from headscope.statistics.reasons import (
    CONDITIONS_BESIDE_LIFT,
    NEAR_LIFT,
    check_relation,
    condition_results,
    effects_to_report,
    explained_by,
    head_in,
    rows_to_report,
)
from headscope.statistics.result import Result
from headscope.statistics.tags import INCONCLUSIVE, NO_TAG, UNIDENTIFIABLE
from headscope.statistics.untagged_heads import partial_sinks, undecided
from headscope.statistics.wording import baseline_in_words, strictest_control
from headscope.views.prose import render

MOST_TAGS = 3
MAX_TERMS = 5
_VERDICTS = {INCONCLUSIVE: "Inconclusive", UNIDENTIFIABLE: "Not identifiable"}


def why(result: Result, head: str | tuple[int, int], relation: str | None = None) -> str:
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
    label = head_name(layer, number)
    if relation is not None:
        check_relation(result, relation)
    evidence = result.evidence_with_thresholds
    account = explain_tags(evidence, result.thresholds, layer, number, relation=relation)
    name, _, conditions = account.partition("\n\n")
    if result.preliminary:
        name = f"{name} ({PRELIMINARY})\n{result.preliminary}."
    if relation is not None:
        return "\n\n".join(filter(None, [name, conditions]))
    partial_sink = partial_sink_lines(evidence)
    effect_facts = result.info.get("effects", {})
    effects = direct_effect_lines(result.effects, effect_facts, layer, number)
    causes = [] if result.causes is None else cause_lines(result.causes, layer, number)
    tags = _tags(result, layer, number)
    # examples of largest, middling and smallest mass of each relation
    of_relation: dict[str, list[Example]] = {}
    for example in result.examples:
        is_of_head = (example.layer, example.head) == (layer, number)
        if is_of_head and example.relation:
            examples = of_relation.setdefault(example.relation, [])
            examples.append(example)
    lines = []
    for examples in of_relation.values():
        ordered = sorted(examples, key=lambda example: -example.mass)
        last = len(ordered) - 1
        ranks = sorted({0, len(ordered) // 2, last})
        lines += [str(ordered[rank]) for rank in ranks]
    parts = [
        name,
        _undecided(result, label),
        conditions,
        partial_sink.get((layer, number), ""),
        _listed("Feature model:", _feature_model(result, layer, number)),
        _listed("Direct effects:", effects),
        _listed("Causes:", causes),
        _listed(render("examples", has_tag=bool(tags)), lines),
    ]
    return "\n\n".join(filter(None, parts))


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
    rows = rows_to_report(table, layer, head, relation)
    sections = {
        "": rows.tagged,
        "Not identifiable": rows.undecided,
        INCONCLUSIVE.capitalize(): rows.inconclusive,
        NO_TAG.capitalize(): rows.rejected,
    }
    # a function that is true of a thing when it is first called with it
    known: set[Hashable] = set()

    def is_new(name: Hashable) -> bool:
        is_first = name not in known
        known.add(name)
        return is_first

    accounts = {}
    for title, rows_of_section in sections.items():
        is_brief = title != "" and relation is None
        accounts[title] = [
            _relation(row, thresholds, is_new, is_brief=is_brief)
            for row in rows_of_section.to_dict("records")
        ]
    return render(
        "relations",
        head=head_name(layer, head),
        names=rows.names,
        near_lift=NEAR_LIFT,
        findings=[] if rows.all.empty else findings(rows.all, thresholds),
        sections=accounts,
    )


def _relation(
    row: Row,
    thresholds: Mapping[str, Threshold],
    is_new: Callable[[Hashable], bool],
    *,
    is_brief: bool,
) -> str:
    """One relation; briefly, the conditions that hold are named in one line."""
    results = condition_results(row)
    holding = []
    if is_brief:
        holding = [result.condition.name for result in results if result.holds]
        results = [result for result in results if not result.holds]
    return render(
        "relation",
        row=row,
        limits=thresholds[row["id"]],
        baseline=_baseline(row),
        caution=preliminary_in_words(row),
        results=results,
        holding=holding,
        times_label=TIMES_LABEL,
        is_new=is_new,
    )


def _baseline(row: Row) -> str:
    """The best baseline of a row in words; empty if there is none, or its rate is not known."""
    if not row["baseline"] or isnan(row["baseline_rate"]):
        return ""
    return baseline_in_words(row["baseline"])


def findings(rows: pd.DataFrame, thresholds: Mapping[str, Threshold]) -> list[str]:
    """A sentence or two on each of a head's strongest tags; without a tag, on what is closest."""
    meanings = rows["id"].map(lambda name: thresholds[name].meaning)
    rows = rows.assign(meaning=meanings)
    tagged = distinct_tags(rows)
    if tagged.empty:
        return [_finding(row) for row in rows.head(1).to_dict("records")]
    lines = [_finding(row) for row in tagged.head(MOST_TAGS).to_dict("records")]
    others = len(tagged) - MOST_TAGS
    if others > 0:
        lines.append(f"Other tags, below: {others}.")
    return lines


def _finding(row: Row) -> str:
    control, keys = strictest_control(row)
    return render(
        "finding",
        row=row,
        control=control,
        keys=keys,
        baseline=_baseline(row),
        caution=preliminary_in_words(row),
        verdict=_VERDICTS.get(str(row["verdict"]), "No tag"),
        failing=[] if row["tagged"] else failing(row),
    )


def _undecided(result: Result, name: str) -> str:
    undecided_heads = undecided(result.heads, result.evidence_with_thresholds)
    if name not in undecided_heads.index:
        return ""
    row = undecided_heads.loc[name]
    return f"Not identifiable: {row['description']}: {row['why']}."


def _feature_model(result: Result, layer: int, head: int) -> list[str]:
    """The head's feature model, and the tags that have no unique bits in it."""
    if result.feature_models is None:
        return []
    lines = feature_model_lines(result.feature_models, result.heads, layer, head)
    tags = _tags(result, layer, head)
    for tag, name in explained_by(result.feature_models, layer, head, tags):
        lines.append(f"{tag} has no unique bits: explained by {name}")
    return lines


def _tags(result: Result, layer: int, head: int) -> list[str]:
    """Full names of the relations that a head is tagged with."""
    evidence = rows_of_head(result.evidence, layer, head)
    tagged = evidence[evidence["tagged"].astype(bool)]
    names: list[str] = (tagged["type"] + "/" + tagged["relation"]).tolist()
    return names


def _listed(title: str, lines: list[str]) -> str:
    if not lines:
        return ""
    return "\n".join([title, *(f"  {line}" for line in lines)])


def feature_model_lines(
    feature_models: pd.DataFrame, heads: pd.DataFrame, layer: int, head: int
) -> list[str]:
    """A head's feature model in words, what it explains, and its features."""
    account = rows_of_head(heads, layer, head).iloc[0]
    terms = rows_of_head(feature_models, layer, head).head(MAX_TERMS)
    text = render("feature_model", head=account.to_dict(), terms=terms.to_dict("records"))
    return text.split("\n")


def direct_effect_lines(
    effects: pd.DataFrame | None, facts: Mapping[str, Mapping[str, Any]], layer: int, head: int
) -> list[str]:
    """Sentences on a head's direct effects: its tags, then the effects nearest to one."""
    if effects is None:
        return ["not measured: run headscope classify --direct-effects"]
    lines = []
    for row in effects_to_report(effects, facts, layer, head).to_dict("records"):
        lines.append(direct_effect_line(row, facts))
    return lines or ["none near a tag"]


def direct_effect_line(row: Row, facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Sentence on a row of the table of direct effects."""
    fact = facts[f"{WRITES}/{row['type']}/{row['effect']}"]
    results = condition_results({**row, "second": fact["second"]}, CONDITIONS_BESIDE_LIFT)
    return render("effect", row=row, fact=fact, results=results)


def partial_sink_lines(table: pd.DataFrame) -> dict[tuple[int, int], str]:
    """The sentences on all partial sinks, by layer and head."""
    lines = {}
    for row in partial_sinks(table).to_dict("records"):
        lines[row["layer"], row["head"]] = render("partial_sink", row=row)
    return lines


def cause_lines(table: pd.DataFrame, layer: int, head: int) -> list[str]:
    """Sentences on the effects of knocking out the edges of each tag, then of ablating the head."""
    causes = rows_of_head(table, layer, head)
    causes = causes.assign(direction=directions(causes))
    is_away = causes["behaviour"].isin(AWAY)
    away_effects = causes[is_away].set_index("type")["effect"].to_dict()
    tags = causes[causes["kind"] == "tag"]
    heads = causes[(causes["kind"] == "head") & ~is_away]
    lines = [render("cause_of_edges", row=row) for row in tags.to_dict("records")]
    for row in heads.to_dict("records"):
        behaviour, unit = BEHAVIOURS.get(str(row["behaviour"]), ("", ""))
        sentence = render(
            "cause_of_head",
            row=row,
            behaviour=behaviour,
            unit=unit,
            elsewhere=away_effects.get(row["type"]),
            has_query_at_every_token=row["behaviour"] in NEAR,
        )
        lines.append(sentence)
    return lines
