"""Sentences on rows of the evidence, of direct effects and of causes.

The terminal, pages and tables take every sentence on a row from here. The numbers of a condition
are worded by its row of `headscope.statistics.conditions.CONDITIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isnan
from typing import Any

import numpy as np
import pandas as pd

from headscope.relations import all_stimuli, head_types
from headscope.relations.baselines import baseline_in_words
from headscope.relations.effects import WRITES
from headscope.relations.relation import Threshold
from headscope.statistics.causes import AWAY, BEHAVIOURS, NEAR, directions
from headscope.statistics.columns import (
    BELOW_BASELINE,
    GENERAL,
    PRELIMINARY,
    REPLICATES,
    rows_of_head,
)
from headscope.statistics.condition import Condition, Numbers, Row
from headscope.statistics.conditions import (
    ANOTHER_TEXT,
    BESIDE_LIFT,
    CONDITIONS,
    alternative,
    has_no_interval,
    strictest_control,
    undecided_in_words,
)
from headscope.statistics.general_labels import TIMES_LABEL, distinct_tags
from headscope.statistics.tags import (
    FEWEST_DOCUMENTS,
    FEWEST_HARD,
    INCONCLUSIVE,
    NO_TAG,
    SINK_RELATIONS,
    UNIDENTIFIABLE,
    is_below_baseline,
    is_undecided,
)

MOST_TAGS = 3
"""Tags of a head that have a sentence each in a short answer."""
MAX_TERMS = 5
"""Features of a feature model that are listed."""
NEAR_MISSES = 3
"""Near misses that a short answer names."""
CAUTIONS = {
    PRELIMINARY: (
        "preliminary",
        f"the tag rests on fewer than {FEWEST_DOCUMENTS} documents of text or fewer than "
        f"{FEWEST_HARD} hard queries",
    ),
    BELOW_BASELINE: (
        "below baseline",
        "the head's hit rate is below that of the relation's baseline; the tag rests on the hard "
        "queries, where the baseline is wrong",
    ),
}
"""Words after a tag and their meaning, by the column of `heads.csv` that lists types with it."""
HeadRow = Mapping[Hashable, Any]
"""A row of `heads.csv`, by column."""
_VERDICTS = {INCONCLUSIVE: "Inconclusive", UNIDENTIFIABLE: "Not identifiable"}
_DEPENDENCY = re.compile(r"(?P<label>.+):(?P<way>head>dep|dep>head)$")
_BESIDE_LIFT = [condition for condition in CONDITIONS if condition.name in BESIDE_LIFT]


def _is_known(value: float | None) -> bool:
    return value is not None and not isnan(value)


# cautions on a tag


def has_caution(row: HeadRow, column: str, tag: str | None = None) -> bool:
    """True if a head's tag of a type, the primary one by default, is listed in a column."""
    types = str(row[column]).split(";")
    name = row["primary"] if tag is None else tag
    return name in types


def marked_tag(row: HeadRow, tag: str) -> str:
    """A head's tag with its cautions in words.

    >>> row = {"primary": "far", "preliminary": "far", "below_baseline": ""}
    >>> marked_tag(row, "far"), marked_tag(row, "sink")
    ('far (preliminary)', 'sink')
    """
    return _marked(tag, [column for column in CAUTIONS if has_caution(row, column, tag)])


def marked_names(tags: pd.DataFrame, names: pd.Series) -> list[str]:
    """Names of tags with their cautions in words; of rows with one name the first decides."""
    has_caution_of = {PRELIMINARY: tags[PRELIMINARY], BELOW_BASELINE: is_below_baseline(tags)}
    marked: dict[str, str] = {}
    for number, name in enumerate(names):
        columns = [column for column in CAUTIONS if has_caution_of[column].iloc[number]]
        marked.setdefault(name, _marked(name, columns))
    return list(marked.values())


def _marked(name: str, columns: Sequence[str]) -> str:
    words = ", ".join(CAUTIONS[column][0] for column in columns)
    return f"{name} ({words})" if words else name


def preliminary_in_words(row: Row) -> str:
    """Reason why the tag of a row with thresholds is preliminary; empty if it is not."""
    if not row[PRELIMINARY]:
        return ""
    has_few_hard = row["hard_n"] < FEWEST_HARD and not isnan(row["beat_baseline_by"])
    if has_few_hard:
        return f"it rests on {row['hard_n']:.0f} hard queries, fewer than {FEWEST_HARD}"
    return f"it rests on fewer than {FEWEST_DOCUMENTS} documents of text"


# evidence on a relation


@dataclass(frozen=True)
class ConditionResult:
    """A condition that applies to a row."""

    condition: Condition
    holds: bool
    numbers: str
    """The numbers in words; with the margin if it fails."""


def condition_results(
    table: pd.DataFrame, conditions: Sequence[Condition] = CONDITIONS
) -> list[list[ConditionResult]]:
    """The conditions that apply to each row with thresholds, with their numbers in words."""
    numbers = Numbers(table)
    rows = table.to_dict("records")
    results: list[list[ConditionResult]] = [[] for _ in rows]
    # a condition is tested on all rows at once, and worded row by row
    for condition in conditions:
        applies = np.ones(len(rows), bool)
        if condition.applies is not None:
            applies = condition.applies(numbers)
        fails = condition.fails(numbers)
        margins = None if condition.margin is None else condition.margin(numbers)
        for i in np.flatnonzero(applies).tolist():
            if fails[i]:
                numbers_in_words = condition.message(rows[i], margins, i)
            else:
                numbers_in_words = condition.describe(rows[i])
            results[i].append(ConditionResult(condition, not fails[i], numbers_in_words))
    return results


def input_in_words(relation: str, meaning: str) -> str:
    """Beginning of a sentence on a relation: the input that its numbers are over.

    It is empty if the meaning names the input, or if no head type that is registered has the
    relation.

    >>> input_in_words("sink/first-token", "the first token of a text, an attention sink")
    'in text, '
    >>> input_in_words("induction/repeat", "the token after the copy, in repeated random tokens")
    ''
    """
    head_type = head_types().get(relation.partition("/")[0])
    if head_type is None:
        return ""
    relations = chain(
        head_type.relations,
        head_type.chat_relations,
        head_type.haystack_relations,
        *head_type.relations_by_kind.values(),
    )
    known = all_stimuli()
    for each in relations:
        if each.id == relation:
            title = " and ".join(known[stimulus].title for stimulus in each.stimuli)
            # such as "the previous token, in random tokens"
            is_named = re.search(rf"\bin [\w ]*{re.escape(title)}$", meaning)
            return "" if is_named else f"in {title}, "
    return ""


def reasons(table: pd.DataFrame) -> list[str]:
    """The column `reason` of rows with thresholds: what the head does with which numbers.

    For a near miss also what failed.
    """
    sentences = []
    for row, results in zip(table.to_dict("records"), condition_results(table), strict=True):
        name = row["id"]
        over = input_in_words(name, row["meaning"])
        numbers = (
            f"{over}{row['mass']:.2f} of its attention on {row['meaning']} (control "
            f"{row['control']:.2f}, lift {_lift(row)}, n {row['n']:,})"
        )
        # without an interval no condition says anything, whether it holds or fails
        if has_no_interval(Numbers(row))[0]:
            sentence = f"{name}: this text cannot decide it: {undecided_in_words(row)}; {numbers}"
        elif row["tagged"]:
            sentence = f"{name}: {numbers}"
            if row[GENERAL]:
                sentence += f"; general: {row[GENERAL]}"
        elif row["verdict"] == UNIDENTIFIABLE:
            sentence = (
                f"{name}, or {alternative(row)}: this text cannot distinguish them; {numbers}"
            )
        else:
            fails = INCONCLUSIVE if row["verdict"] == INCONCLUSIVE else "fails"
            failing = "; ".join(result.numbers for result in results if not result.holds)
            sentence = f"closest to {name}: {numbers}; {fails}: {failing}"
        sentences.append(sentence)
    return sentences


def _lift(row: Row) -> str:
    """The lift of a row with its interval and q value."""
    low, high = row["ci_low"], row["ci_high"]
    return f"{row['lift']:.2f} [{low:.2f}, {high:.2f}], q {row['q_value']:.1g}"


def alternatives(row: Row) -> str:
    """The two things that a head may do: the relation of a row, or a baseline, or chance.

    >>> row = {"surrogate_wrong": float("nan")}
    >>> alternatives(row | {"relation": "obj:dep>head", "baseline": "nearest-VERB"})
    'obj → its head, or nearest verb'
    >>> alternatives(row | {"relation": "det:head>dep", "baseline": "2-words-back"})
    'head → its det, or 2 words back'
    """
    relation = row["relation"]
    if dependency := _DEPENDENCY.match(relation):
        label = dependency["label"]
        is_upward = dependency["way"] == "dep>head"
        relation = f"{label} → its head" if is_upward else f"head → its {label}"
    return f"{relation}, or {baseline_in_words(alternative(row)) or 'chance'}"


def findings(rows: pd.DataFrame, thresholds: Mapping[str, Threshold]) -> list[str]:
    """A sentence or two on each of a head's strongest tags; without a tag, on what is closest."""
    rows = rows.assign(meaning=[thresholds[name].meaning for name in rows["id"]])
    tagged = distinct_tags(rows)
    if tagged.empty:
        return _finding(rows.head(1))
    lines = _finding(tagged.head(MOST_TAGS))
    others = len(tagged) - MOST_TAGS
    if others > 0:
        lines.append(f"Other tags, below: {others}.")
    return lines


def _finding(rows: pd.DataFrame) -> list[str]:
    """For each row the head's attention, its hits, the verdict, and if it would come out again."""
    lines = []
    for row, results in zip(rows.to_dict("records"), condition_results(rows), strict=True):
        control, keys = strictest_control(row)
        general = f", general {row[GENERAL]}" if row["tagged"] and row[GENERAL] else ""
        over = input_in_words(row["id"], row["meaning"])
        sentences = [
            f"{row['id']}{general}: {over}{row['mass']:.2f} of its attention is on "
            f"{row['meaning']}, {control:.2f} on {keys}."
        ]
        if hits := _hits(row):
            sentences.append(f"It is right at {hits}.")
            sentences += _at_hard_queries(row)
        # the verdict, with the numbers of the one condition that fails, or the names of several
        states_replicates = False
        if row["tagged"]:
            if caution := preliminary_in_words(row):
                sentences.append(f"The tag is preliminary: {caution}.")
        else:
            verdict = _VERDICTS.get(str(row["verdict"]), "No tag")
            failing = [result for result in results if not result.holds]
            if len(failing) == 1:
                states_replicates = failing[0].condition.name == ANOTHER_TEXT
                verdict += f": {failing[0].numbers}"
            elif failing:
                names = ", ".join(result.condition.name for result in failing)
                verdict += f": it fails {names}"
            sentences.append(f"{verdict}.")
        if _is_known(row[REPLICATES]) and not states_replicates:
            sentences.append(
                f"Another text of this size gives the tag with probability {row[REPLICATES]:.2f}."
            )
        lines.append(" ".join(sentences))
    return lines


def _hits(row: Row) -> str:
    """Shares of queries that head and baseline get right; empty if one of them is not known."""
    has_baseline = row["baseline"] and not isnan(row["baseline_rate"])
    if not has_baseline or not _is_known(row["hit_rate"]):
        return ""
    is_below = row["hit_rate"] < row["baseline_rate"]
    baseline = baseline_in_words(row["baseline"])
    return (
        f"{row['hit_rate']:.0%} of {row['n']:,} queries (“{baseline}”: {row['baseline_rate']:.0%}"
        f"{', more often' if is_below else ''})"
    )


def _at_hard_queries(row: Row) -> Iterator[str]:
    """Sentences on the queries where the baseline is wrong."""
    if _is_known(row["hard_rate"]):
        yield (
            f"At {row['hard_n']:,.0f} hard queries, where the baseline is wrong, its mean "
            f"preference for the target is {row['hard_rate']:.2f}."
        )
    if _is_known(row["top_rate"]):
        yield (
            f"At {row['top_rate']:.0%} of them the target has the most attention of all tokens but "
            "sinks."
        )
    # what the challenge set adds to a tag
    if row["tagged"] and row["text_verdict"] and _is_known(row["text_hard_n"]):
        added = row["hard_n"] - row["text_hard_n"]
        if added > 0:
            yield (
                f"Of the hard queries {row['text_hard_n']:,.0f} are of the text and {added:,.0f} "
                "of the challenge set; by those of the text alone it would be "
                f"{row['text_verdict']}."
            )


class Accounts:
    """Accounts of relations with every condition; each term is explained where it comes first."""

    def __init__(self, thresholds: Mapping[str, Threshold]) -> None:
        self._thresholds = thresholds
        self._explained: set[Hashable] = set()

    def of(self, rows: pd.DataFrame, *, is_brief: bool = False) -> list[str]:
        """An account of each row; briefly, the conditions that hold are named in one line."""
        accounts = []
        for row, results in zip(rows.to_dict("records"), condition_results(rows), strict=True):
            limits = self._thresholds[row["id"]]
            is_first = self._is_new("masses")
            of_control = " (its attention on control keys)" if is_first else ""
            of_chance = " (with uniform attention)" if is_first else ""
            over = input_in_words(row["id"], limits.meaning)
            lines = [
                f"{row['id']}: {over}{row['mass']:.3f} of its attention on {limits.meaning}; "
                f"control {row['control']:.3f}{of_control}, chance {row['chance']:.3f}{of_chance}"
            ]
            if row[GENERAL]:
                name = self._explain(
                    "general",
                    "labels that the head does not separate: a tag names one of them only if its "
                    f"lift is significantly larger than every other's, and {TIMES_LABEL:g} times "
                    "as large",
                )
                lines.append(f"{name}: {row[GENERAL]}")
            # a condition states the probability where all others hold
            states_replicates = any(result.condition.name == ANOTHER_TEXT for result in results)
            if _is_known(row[REPLICATES]) and not states_replicates:
                name = self._explain(
                    "replicates", "probability of the tag on another text of this size"
                )
                lines.append(f"{name}: {row[REPLICATES]:.2f}")
            if caution := preliminary_in_words(row):
                lines.append(f"preliminary: {caution}")
            if hits := _hits(row):
                lines.append(f"its largest attention is on a target at {hits}")
            # the conditions, each with its numbers
            for result in results:
                if result.holds and is_brief:
                    continue
                name = self._explain(result.condition.name, result.condition.means)
                lines.append(f"{'yes' if result.holds else 'no '} {name}: {result.numbers}")
            holding = [result.condition.name for result in results if result.holds]
            if holding and is_brief:
                lines.append(f"conditions that hold: {', '.join(holding)}")
            if self._is_new((limits.threshold, limits.source)):
                lines.append(f"why the threshold is {limits.threshold:g}: {limits.source}")
            accounts.append("\n  ".join(lines))
        return accounts

    def _explain(self, name: str, meaning: str) -> str:
        """A term, with its meaning where it comes first."""
        return f"{name} ({meaning})" if self._is_new(name) else name

    def _is_new(self, term: Hashable) -> bool:
        is_first = term not in self._explained
        self._explained.add(term)
        return is_first


def title_of_head(rows: pd.DataFrame, tags: Sequence[str]) -> str:
    """The tags of a head, and the relation of largest lift that is not identifiable.

    Args:
        rows: the head's rows with thresholds, in their order.
        tags: its tags with their cautions.
    """
    # what the text cannot decide comes after tags, and the closest relation only without both
    titles = [", ".join(tags)] if tags else []
    undecided = rows[is_undecided(rows)]
    if len(undecided):
        undecided = undecided.sort_values("lift", ascending=False, kind="stable")
        others = f" (and {len(undecided) - 1} more)" if len(undecided) > 1 else ""
        pair = alternatives(undecided.iloc[0].to_dict())
        titles.append(f"{UNIDENTIFIABLE}: {pair}{others}")
    if titles:
        return "; ".join(titles)
    closest = rows.iloc[0]
    narrow = f"{INCONCLUSIVE}, " if closest["verdict"] == INCONCLUSIVE else ""
    return f"{narrow}{NO_TAG} {closest['id']}"


def numbers_of_head(rows: pd.DataFrame) -> Iterator[str]:
    """Lift and q value of a head's first relation, and the relations that narrowly fail.

    Args:
        rows: the head's rows with thresholds, in their order.
    """
    first = rows.iloc[0]
    if pd.notna(first["q_value"]):
        lift = f"{_lift(first.to_dict())}, {first['n']:,} queries"
        yield f"lift of {first['relation']} over control keys: {lift}"
    # relations that narrowly fail may hold on another text
    others = rows.iloc[1:]
    near = others.loc[others["verdict"] == INCONCLUSIVE, "id"]
    if len(near):
        unlisted = f" and {len(near) - NEAR_MISSES} more" if len(near) > NEAR_MISSES else ""
        yield f"near misses: {', '.join(near.head(NEAR_MISSES))}{unlisted}"


def partial_sink_in_words(row: Row) -> str:
    """Sentence on a row of `headscope.statistics.head_lists.partial_sinks`."""
    over = input_in_words(row["id"], row["meaning"])
    return (
        f"Partial sink: {over}{row['mass']:.2f} of its attention on {row['description']}; the tag "
        f"requires {row['threshold']:g}."
    )


def label_in_words(row: Row, finding: str, tags: Collection[str]) -> str:
    """The finding on a label that a relation decides; of a sink also the head's other tags."""
    if row["id"] not in SINK_RELATIONS:
        return finding
    others = ", ".join(tag for tag in tags if tag not in SINK_RELATIONS) or "none"
    return f"{finding} An attention sink is not a function; other tags of this head: {others}."


# what heads write, what their removal does, and which features explain them


def direct_effects_in_words(
    effects: pd.DataFrame, records: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Sentence on each row of the table of direct effects.

    Args:
        effects: rows of that table.
        records: entries of `run.json` for the effects, by their full names.
    """
    # the table has numbers alone: meaning, sign and controls of an effect are in the record
    names = f"{WRITES}/" + effects["type"] + "/" + effects["effect"]
    of_rows = [records[name] for name in names]
    results_of_rows = condition_results(
        effects.assign(second=[record["second"] for record in of_rows]), _BESIDE_LIFT
    )
    sentences = []
    for row, record, results in zip(
        effects.to_dict("records"), of_rows, results_of_rows, strict=True
    ):
        share = ""
        if _is_known(row["share"]):
            share = f"; {row['share']:.0%} of the sum over all heads"
        sentences.append(
            f"{'' if row['tagged'] else 'no tag: '}{row['type']}/{row['effect']}: it "
            f"{record['meaning']}: {row['on']:+.2f} logits, control {row['control']:+.2f}, lift "
            f"{row['lift']:+.2f} [{row['ci_low']:+.2f}, {row['ci_high']:+.2f}], q "
            f"{row['q_value']:.1g}, n {row['n']:,}, threshold {row['threshold']:g}"
            f"{''.join(f'; {result.numbers}' for result in results)}{share}"
        )
    return sentences


def causes_in_words(table: pd.DataFrame, layer: int, head: int) -> list[str]:
    """Sentences on the effects of knocking out the edges of each tag, then of ablating the head."""
    causes = rows_of_head(table, layer, head)
    causes = causes.assign(direction=directions(causes))
    # effects at other tokens have no sentence of their own: they qualify that at the queries
    is_away = causes["behaviour"].isin(AWAY)
    away_effects = causes[is_away].set_index("type")["effect"].to_dict()
    tags = causes[causes["kind"] == "tag"]
    heads = causes[(causes["kind"] == "head") & ~is_away]
    lines = [_cause_of_edges(row) for row in tags.to_dict("records")]
    for row in heads.to_dict("records"):
        lines.append(_cause_of_head(row, away_effects.get(row["type"])))
    return lines


def _cause_of_edges(row: HeadRow) -> str:
    name = f"{row['type']}/{row['relation']}"
    if not _is_known(row["effect"]):
        return f"{name}, edges to its targets: {row['verdict']}"
    # divergences are smaller than losses, and have a digit more
    low, high = row["excess_low"], row["excess_high"]
    excess = f"{row['excess']:+.4f} [{low:+.4f}, {high:+.4f}]"
    low, high = row["times_low"], row["times_high"]
    times = f"{row['times']:.1f} times as much [{low:.1f}, {high:.1f}]"
    low, high = row["loss_low"], row["loss_high"]
    loss = f"{row['loss_excess']:+.3f} [{low:+.3f}, {high:+.3f}]"
    q_value = ""
    if _is_known(row["q_value"]):
        q_value = f", q {row['q_value']:.2g}"
    return (
        f"{name}: knocking out the edges to its targets ({row['moved']:.2f} of the attention, at "
        f"{row['n']:,} queries) changes what is predicted there by {row['effect']:.4f} nats, as "
        f"much other attention of the layer by {row['control']:.4f}: {excess}, typically {times}; "
        f"the loss of the next token changes by {row['loss']:+.3f} nats, {loss} more than with the "
        f"control ({row['direction']}){q_value}: {row['verdict']}"
    )


def _cause_of_head(row: HeadRow, elsewhere: float | None) -> str:
    """Sentence on an ablated head, with the effect at other tokens than its queries if known."""
    if not _is_known(row["effect"]):
        return f"{row['type']}: {row['verdict']}"
    behaviour, unit = BEHAVIOURS.get(str(row["behaviour"]), ("", ""))
    sentence = (
        f"{row['type']}: ablating it ({row['how']}) changes {behaviour} from {row['clean']:.2f} to "
        f"{row['ablated']:.2f}: {row['effect']:+.3f} {unit} [{row['ci_low']:+.3f}, "
        f"{row['ci_high']:+.3f}] ({row['direction']})"
    )
    # an effect as large elsewhere would not be of the relation
    if _is_known(elsewhere):
        sentence += f", elsewhere {elsewhere:+.3f}"
    elif row["behaviour"] in NEAR:
        sentence += "; its relation has queries at every token, so there are no other tokens"
    if _is_known(row["control"]):
        sentence += f"; control heads {row['control']:+.3f}"
        if _is_known(row["q_value"]):
            sentence += f", q {row['q_value']:.2g}"
    return f"{sentence}: {row['verdict']}"


def feature_model_in_words(
    feature_models: pd.DataFrame, heads: pd.DataFrame, layer: int, head: int
) -> list[str]:
    """A head's feature model, what it explains, and its features."""
    # the sentence on the whole model stands in the table of heads
    of_head = rows_of_head(heads, layer, head).iloc[0]
    lines = [
        str(of_head["feature_model"]),
        f"explains {of_head['explained']:.0%} of its bits above uniform attention",
    ]
    for term in rows_of_head(feature_models, layer, head).head(MAX_TERMS).to_dict("records"):
        queries = f" on a {term['queries']}" if term["queries"] else ""
        lines.append(
            f"{term['feature']}{queries}: weight {term['weight']:+.2f}, {term['unique']:.1%} "
            "unique bits"
        )
    return lines
