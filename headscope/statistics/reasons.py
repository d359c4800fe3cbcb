"""Why a head has its tags: every condition with its number, near misses, causes and examples.

`explain_tags` explains each word once, and says in short first where the head looks, how sure that
is, and what it lacks. `why` adds what else a run knows of the head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import pandas as pd

from headscope.errors import RunError
from headscope.heads import check_head_exists, head_name, parse_head
from headscope.measure.example import Example
from headscope.relations.effects import WRITES
from headscope.relations.relation import Threshold
from headscope.statistics.causes import cause_lines
from headscope.statistics.cautions import marked_names, preliminary_in_words
from headscope.statistics.columns import (
    GENERAL,
    PRELIMINARY,
    rows_of_head,
    strongest_effects_first,
)
from headscope.statistics.conditions import BESIDE_LIFT, CONDITIONS, Numbers, Row, failing
from headscope.statistics.general_labels import TIMES_LABEL, distinct_tags, tag_names
from headscope.statistics.head_lists import partial_sink_lines, undecided
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import (
    INCONCLUSIVE,
    NO_TAG,
    UNCLASSIFIED,
    UNIDENTIFIABLE,
    evidence_order,
    is_undecided,
    with_thresholds,
)
from headscope.statistics.wording import baseline_in_words, strictest_control

NEAR_MISSES = 3
NEAR_LIFT = 0.02  # below that a relation counts as noise, not as a near miss
MOST_TAGS = 3
_VERDICTS = {INCONCLUSIVE: "Inconclusive", UNIDENTIFIABLE: "Not identifiable"}
MIN_UNIQUE = 0.005
"""The least share of a head's bits that is some: less is within what a refit moves."""
MAX_TERMS = 5
MAX_NEAR_EFFECTS = 3
"""Effects without a tag that are shown of a head."""
NEAR_EFFECT = 0.5
"""Share of the threshold below which an effect does not count as a near miss."""
_PLAIN = ("positional/", "sink/", "delimiter/", "induction/")
_MARKS = (
    "[[query]], «target», … omitted tokens; 30: position of the next token; elsewhere: "
    "attention on tokens not shown"
)


def explain_tags(
    evidence: pd.DataFrame,
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
    table = with_thresholds(evidence, thresholds)
    head_evidence = rows_of_head(table, layer, head)
    head_evidence = head_evidence.loc[evidence_order(head_evidence)]
    tagged = head_evidence[head_evidence["tagged"].astype(bool)]
    undecided_rows = head_evidence[is_undecided(head_evidence)]
    open_rows = head_evidence[head_evidence["verdict"] == UNIDENTIFIABLE]
    near = head_evidence.drop([*tagged.index, *open_rows.index])
    names = marked_names(tagged, tag_names(tagged))
    if not names:
        names = [UNIDENTIFIABLE if len(undecided_rows) else UNCLASSIFIED]
    if relation is None:
        open_rows = undecided_rows
        is_near = (near["lift"] > NEAR_LIFT) & near["ci_low"].notna()
        near = near[is_near].head(NEAR_MISSES)
    else:
        tagged = _rows_with_name(tagged, relation)
        open_rows = _rows_with_name(open_rows, relation)
        near = _rows_with_name(near, relation)
    lines = [f"{head_name(layer, head)}: {', '.join(names)}"]
    explained = pd.concat([tagged, open_rows, near])
    if explained.empty:
        lines += ["", f"No tag: no relation has a lift above {NEAR_LIFT}."]
        return "\n".join(lines)
    lines += ["", "In short:"]
    lines += [f"  {line}" for line in findings(explained, thresholds)]
    is_inconclusive = near["verdict"] == INCONCLUSIVE
    sections = {
        "": tagged,
        "Not identifiable:": open_rows,
        f"{INCONCLUSIVE.capitalize()}:": near[is_inconclusive],
        f"{NO_TAG.capitalize()}:": near[~is_inconclusive],
    }
    known: set[str] = set()
    for title, rows in sections.items():
        if title and len(rows):
            lines += ["", title]
        is_brief = title != "" and relation is None
        for row in rows.to_dict("records"):
            account = _account(row, thresholds, known, is_brief=is_brief)
            lines += ["", *account]
    return "\n".join(lines)


def _rows_with_name(rows: pd.DataFrame, relation: str) -> pd.DataFrame:
    """Rows of `with_thresholds` with a part of the relation's full name."""
    return rows[rows["id"].str.contains(relation, regex=False)]


def _accuracy(row: Row) -> list[str]:
    """Hit rate of the head and of the best baseline; none if there is no baseline."""
    if not row["baseline"] or isnan(row["baseline_rate"]):
        return []
    baseline = baseline_in_words(row["baseline"])
    line = (
        f"  its largest attention is on a target at {row['hit_rate']:.0%} of its queries; "
        f"“{baseline}” at {row['baseline_rate']:.0%}"
    )
    if row["hit_rate"] < row["baseline_rate"]:
        line += ", more often"
    return [line]


def _general(row: Row, known: set[str]) -> list[str]:
    """The general label of a tag that is not specific, and where it is first named what it says."""
    if not row[GENERAL]:
        return []
    means = ""
    if GENERAL not in known:
        means = (
            " (labels that the head does not separate: a tag names one of them only if its lift "
            f"is significantly larger than every other's, and {TIMES_LABEL:g} times as large)"
        )
    known.add(GENERAL)
    return [f"  general{means}: {row[GENERAL]}"]


def _account(
    row: Row, thresholds: Mapping[str, Threshold], known: set[str], *, is_brief: bool
) -> Sequence[str]:
    """One relation; what is explained in it joins what is known.

    Briefly, the conditions that hold are named in one line, and those that fail have their numbers.
    """
    limits = thresholds[row["id"]]
    # what the two numbers are is said where a head's first relation is explained
    control_means = "" if known else " (its attention on control keys)"
    chance_means = "" if known else " (with uniform attention)"
    lines = [
        f"{row['id']}: {row['mass']:.3f} of its attention on {limits.meaning}; "
        f"control {row['control']:.3f}{control_means}, "
        f"chance {row['chance']:.3f}{chance_means}"
    ]
    lines += _general(row, known)
    caution = preliminary_in_words(row)
    if caution:
        lines.append(f"  {PRELIMINARY}: {caution}")
    lines += _accuracy(row)
    lines += _condition_lines(row, known, is_brief=is_brief)
    threshold = f"  why the threshold is {limits.threshold:g}: {limits.source}"
    if threshold not in known:
        lines.append(threshold)
    known.add(threshold)
    return lines


def _condition_lines(row: Row, known: set[str], *, is_brief: bool) -> list[str]:
    """A line for each condition that applies; briefly, one line for all that hold."""
    numbers = Numbers(row)
    lines, holding = [], []
    for condition in CONDITIONS:
        if not condition.applies_to(row):
            continue
        fails = bool(condition.fails(numbers)[0])
        if is_brief and not fails:
            holding.append(condition.name)
            continue
        means = "" if condition.name in known else f" ({condition.means})"
        known.add(condition.name)
        holds = "no " if fails else "yes"
        numbers_in_words = condition.message(row) if fails else condition.describe(row)
        lines.append(f"  {holds} {condition.name}{means}: {numbers_in_words}")
    if holding:
        lines.append(f"  these hold: {', '.join(holding)}")
    return lines


def findings(rows: pd.DataFrame, thresholds: Mapping[str, Threshold]) -> list[str]:
    """A sentence or two on each of a head's strongest tags; without a tag, on what is closest."""
    meanings = rows["id"].map(lambda name: thresholds[name].meaning)
    rows = rows.assign(meaning=meanings)
    tagged = distinct_tags(rows)
    if tagged.empty:
        return [_refusal(row) for row in rows.head(1).to_dict("records")]
    lines = [_tag(row) for row in tagged.head(MOST_TAGS).to_dict("records")]
    others = len(tagged) - MOST_TAGS
    if others > 0:
        lines.append(f"Other tags, below: {others}.")
    return lines


def _tag(row: Row) -> str:
    sentences = [_masses(row)]
    accuracy = _hit_rate_and_baseline(row)
    if accuracy:
        sentences.append(accuracy)
    if pd.notna(row["confirmed"]) and row["confirmed"]:
        sentences.append("Each half of the text also gives this tag.")
    caution = preliminary_in_words(row)
    if caution:
        sentences.append(f"The tag is {PRELIMINARY}: {caution}.")
    name = row["id"]
    if row[GENERAL]:
        name += f", general {row[GENERAL]}"
    return f"{name}: {' '.join(sentences)}"


def _refusal(row: Row) -> str:
    """The closest relation of a head without a tag, and the conditions that fail."""
    failed = failing(row)
    verdict = _VERDICTS.get(str(row["verdict"]), "No tag")
    if len(failed) == 1:
        verdict += f": {failed[0].message(row)}"
    elif failed:
        names = ", ".join(condition.name for condition in failed)
        verdict += f": it fails {names}"
    sentences = [_masses(row)]
    accuracy = _hit_rate_and_baseline(row)
    if accuracy:
        sentences.append(accuracy)
    sentences.append(f"{verdict}.")
    return f"{row['id']}: {' '.join(sentences)}"


def _masses(row: Row) -> str:
    control, keys = strictest_control(row)
    return f"{row['mass']:.2f} of its attention is on {row['meaning']}, {control:.2f} on {keys}."


def _hit_rate_and_baseline(row: Row) -> str:
    """Hit rates of the head and the best baseline; empty if there is no baseline."""
    if not row["baseline"] or isnan(row["baseline_rate"]) or isnan(row["hit_rate"]):
        return ""
    baseline = baseline_in_words(row["baseline"])
    more_often = ", more often" if row["hit_rate"] < row["baseline_rate"] else ""
    line = (
        f"It is right at {row['hit_rate']:.0%} of {row['n']:,} queries ("
        f"“{baseline}”: {row['baseline_rate']:.0%}{more_often})."
    )
    if isnan(row["hard_rate"]):
        return line
    return (
        f"{line} Where that is wrong, the head prefers the target at {row['hard_rate']:.0%} of "
        f"{row['hard_n']:.0f} hard queries."
    )


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
    account = explain_tags(result.evidence, result.thresholds, layer, number, relation=relation)
    name, _, conditions = account.partition("\n\n")
    if result.preliminary:
        name = f"{name} ({PRELIMINARY})\n{result.preliminary}."
    if relation is not None:
        return "\n\n".join(filter(None, [name, conditions]))
    partial_sink = partial_sink_lines(result.evidence, result.thresholds)
    effect_facts = result.info.get("effects", {})
    effects = direct_effect_lines(result.effects, effect_facts, layer, number)
    causes = [] if result.causes is None else cause_lines(result.causes, layer, number)
    parts = [
        name,
        _undecided(result, label),
        conditions,
        partial_sink.get((layer, number), ""),
        _unsure(result, layer, number),
        _listed("Feature model:", _feature_model(result, layer, number)),
        _listed("Direct effects:", effects),
        _listed("Causes:", causes),
        _listed(_examples_title(result, layer, number), _examples(result, layer, number)),
    ]
    return "\n\n".join(filter(None, parts))


def head_in(result: Result, head: str | tuple[int, int]) -> tuple[int, int]:
    """Layer and number of a head of a run, by its name or by such a pair.

    Raises:
        RunError: the run has no such head.
        HeadscopeError: it is not the name of a head.
    """
    layer, number = parse_head(head)
    heads = int(result.heads["head"].max()) + 1
    check_head_exists(layer, number, layers=layers_of(result), heads=heads, where="this run")
    return layer, number


def check_relation(result: Result, relation: str) -> None:
    """Refuse a part of a name that no relation of the run has."""
    evidence = result.evidence
    names = (evidence["type"] + "/" + evidence["relation"]).unique().tolist()
    if not any(relation in name for name in names):  # pandas takes no text that is not UTF-8
        listed = ", ".join(names[:3])
        raise RunError(f"no relation of this run has {relation!r} in its name, as {listed} have")


def _undecided(result: Result, name: str) -> str:
    undecided_heads = undecided(result.heads, result.evidence, result.thresholds)
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


def _unsure(result: Result, layer: int, head: int) -> str:
    unsure = [name for name in _tags(result, layer, head) if result.unsure(name)]
    if not unsure:
        return ""
    return f"Unreliable in this run (two halves of the corpus disagree): {', '.join(unsure)}"


def _examples(result: Result, layer: int, head: int) -> list[str]:
    """Examples of largest, middling and smallest mass of each relation."""
    of_relation: dict[str, list[Example]] = {}
    for example in result.examples:
        is_of_head = (example.layer, example.head) == (layer, head)
        if is_of_head and example.relation:
            examples = of_relation.setdefault(example.relation, [])
            examples.append(example)
    lines = []
    for examples in of_relation.values():
        ordered = sorted(examples, key=lambda example: -example.mass)
        last = len(ordered) - 1
        ranks = sorted({0, len(ordered) // 2, last})
        lines += [str(ordered[rank]) for rank in ranks]
    return lines


def _examples_title(result: Result, layer: int, head: int) -> str:
    """Title of the examples, with the meaning of their marks."""
    title = (
        "Examples: a query of the best tenth (decile), of the middle and of the worst tenth, with "
        "their mass; the report has more:"
    )
    lines = [title]
    if not _tags(result, layer, head):
        lines.append(
            "The head has no tag: these are queries of its taggable relation with the largest lift."
        )
    lines.append(_MARKS)
    return "\n".join(lines)


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
    lines = [
        f"{account['feature_model']}",
        f"explains {account['explained']:.0%} of its bits above uniform attention",
    ]
    terms = rows_of_head(feature_models, layer, head)
    for row in terms.head(MAX_TERMS).itertuples():
        at = f" on a {row.queries}" if row.queries else ""
        lines.append(f"{row.feature}{at}: weight {row.weight:+.2f}, {row.unique:.1%} unique bits")
    return lines


def explained_by(
    feature_models: pd.DataFrame, layer: int, head: int, tags: list[str]
) -> list[tuple[str, str]]:
    """Tags whose relation has no bits of its own, each with the feature that has most instead.

    A relation in the feature model with unique bits is not a consequence of another. Positions, the
    first token and delimiters are features under names of their own and are not asked here.
    """
    terms = rows_of_head(feature_models, layer, head)
    features = terms[terms["weight"] > 0]
    if features.empty:
        return []
    has_unique_bits = features["unique"] >= MIN_UNIQUE
    unique_features = set(features.loc[has_unique_bits, "feature"])
    strongest = str(features["feature"].iloc[0])
    explanations = []
    for tag in tags:
        if not tag.startswith(_PLAIN) and tag not in unique_features:
            explanations.append((tag, strongest))
    return explanations


def direct_effect_lines(
    effects: pd.DataFrame | None, facts: Mapping[str, Mapping[str, Any]], layer: int, head: int
) -> list[str]:
    """Sentences on a head's direct effects: its tags, then the effects nearest to one."""
    if effects is None:
        return ["not measured: run headscope classify --direct-effects"]
    head_effects = rows_of_head(effects, layer, head)
    head_effects = head_effects.loc[strongest_effects_first(head_effects)]
    tagged = head_effects[head_effects["tagged"].astype(bool)]
    other = head_effects.drop(tagged.index)
    ids = f"{WRITES}/" + other["type"] + "/" + other["effect"]
    sign_of = {name: fact["sign"] for name, fact in facts.items()}
    sign = ids.map(sign_of).astype(float)
    is_near = other["lift"] * sign >= NEAR_EFFECT * other["threshold"]
    near = other[is_near].head(MAX_NEAR_EFFECTS)
    lines = [_write_line(row, facts, "") for row in tagged.to_dict("records")]
    lines += [_write_line(row, facts, "no tag: ") for row in near.to_dict("records")]
    return lines or ["none near a tag"]


def _write_line(row: dict[Any, Any], facts: Mapping[str, Mapping[str, Any]], before: str) -> str:
    name = f"{row['type']}/{row['effect']}"
    fact = facts[f"{WRITES}/{name}"]
    interval = f"[{row['ci_low']:+.2f}, {row['ci_high']:+.2f}]"
    line = (
        f"{before}{name}: it {fact['meaning']}: {row['on']:+.2f} logits, control "
        f"{row['control']:+.2f}, lift {row['lift']:+.2f} {interval}, "
        f"q {row['q_value']:.1g}, n {row['n']}, threshold "
        f"{row['threshold']:g}"
    )
    row = row | {"second": fact["second"]}
    for condition in CONDITIONS:
        if condition.name in BESIDE_LIFT and condition.applies_to(row):
            line += f"; {condition.describe(row)}"
    if pd.notna(row["share"]):
        line += f"; {row['share']:.0%} of the sum over all heads"
    return line
