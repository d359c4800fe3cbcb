"""Comparison of runs head by head: tags gained and lost, and differences of lift.

`condition_outcomes` turns a comparison into a guard of a model that was quantised, pruned, merged
or fine-tuned.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from headscope.errors import RunError, check_choice
from headscope.heads import head_name
from headscope.relations.relation import MIN_QUERIES
from headscope.resolve import RunName, run_names, the_run
from headscope.statistics.head_table import with_no_type
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import NO_TYPE, OPEN, UNCLASSIFIED, tags_in_order
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.colours import types_in_order
from headscope.views.study_figure import HeatMap
from headscope.views.study_result import StudyResult

HEAD = ["layer", "head"]
KEY = [*HEAD, "type", "relation"]
FORM = re.compile(
    r"(sure )?(changes|lost|gained)(?: ([a-z][a-z0-9-]*))?\s*(>=(?!\s*0*$)|>)\s*(\d{1,6})"
)
HeadTag = tuple[int, int, str]
"""Layer, head and type of a tag."""


STUDY = Study(
    command=Command(
        group="top",
        summary="Compare the heads of two or more runs.",
        examples=("headscope compare runs/base runs/new --fail-on 'lost induction > 0'",),
    ),
    rows="head and run but the first",
    columns=table_columns("""
        run | text | name of the run that is compared with the first
        layer, head | count, ≥ 0 | layer of the head, and its number there
        primary_first | a head type | its primary type in the first run
        primary | a head type | its primary type in this run
        gained | types joined by `;` | tags that only this run gives
        lost | types joined by `;` | tags that only the first run gives
        undecided | types joined by `;` | tags that one run gives and the other leaves open; neither
            gained nor lost
        sure | types joined by `;` | gained and lost tags whose relation's intervals do not overlap
        apart | relations, ≥ 0 | relations of the head whose intervals do not overlap
        relation | `type/name` | the relation with the largest difference among them
        lift_difference | [−2, 2] | its lift in this run − that in the first
    """),
    figure=HeatMap(value="lift_difference", mark="changed", panels=("run",)),
    bad_call={"runs": ""},
)


@study(STUDY)
def compare(*runs: RunName) -> StudyResult:
    """Compare runs of models with the same layers and heads, head by head.

    Only relations that all runs have are compared; the notes name the others. For a single head
    and relation, noise separates two intervals in about 1 of 180 cases (two normal means of equal
    error).

    Raises:
        RunError: fewer than two runs, a folder without a run, runs of other shapes, or runs
            without a common relation.
    """
    # runs of one shape, with relations in common
    if len(runs) < 2:
        raise RunError(f"compare takes two runs or more, and {len(runs)} came")
    loaded = [the_run(run) for run in runs]
    names = run_names(runs)
    for other, other_name in zip(loaded[1:], names[1:], strict=True):
        if _shape(other) != _shape(loaded[0]):
            raise RunError(
                f"{names[0]} and {other_name} differ in layers or heads; compare takes runs of "
                "models with the same layers and heads"
            )
    common = set.intersection(*(set(run.thresholds) for run in loaded))
    if not common:
        raise RunError(
            f"{', '.join(names)} have no relation in common; classify all with the same --types"
        )
    # verdicts are taken again on the common relations
    restricted = [_of_relations(run, common) for run in loaded]
    first = restricted[0]
    tables = []
    for run, name in zip(restricted[1:], names[1:], strict=True):
        relations = relation_changes(first, run)
        tables.append(head_changes(first, run, relations, name))
    table = pd.concat(tables, ignore_index=True)
    # the terminal shows heads that changed, and the file all of them
    is_changed = changed(table)
    rows = table[is_changed]
    title = (
        f"{', '.join(names[1:])} compared with {names[0]}: "
        f"{len(rows)} of {len(table)} heads changed their tags"
    )
    types = {relation.split("/")[0] for relation in common}
    left_out = _left_out_notes(loaded, names, common)
    return StudyResult(
        title=title,
        table=table,
        terminal_table=_terminal_table(rows, several=len(loaded) > 2),
        notes=[*left_out, *_notes(restricted, names)],
        values={"runs": names, "types": types_in_order(types | {UNCLASSIFIED})},
        draw=partial(STUDY.draw, table=table.assign(changed=is_changed)),
    )


def _terminal_table(rows: pd.DataFrame, *, several: bool) -> pd.DataFrame:
    """Changed heads, those with sure changes and large differences first."""
    hidden = {"undecided", "apart"}
    if not several:
        hidden.add("run")
    unsure = rows["sure"] == ""
    size = -rows["lift_difference"].abs().fillna(0)
    order = rows.assign(unsure=unsure, size=size)
    order = order.sort_values(["unsure", "size"], kind="stable")
    return order[[column for column in STUDY.names if column not in hidden]]


def _shape(run: Result) -> tuple[list[int], int]:
    """The layers of a run, and the largest number of a head."""
    return layers_of(run), int(run.heads["head"].max())


def _of_relations(run: Result, relations: Collection[str]) -> Result:
    """The run as if it had these relations alone: its evidence, its heads' tags and primaries."""
    if run.thresholds.keys() == set(relations):
        return run
    # types and primaries as a run of these relations has them
    evidence = run.evidence[_relation_ids(run).isin(relations)]
    thresholds = {name: limits for name, limits in run.thresholds.items() if name in relations}
    run = replace(run, evidence=evidence, thresholds=thresholds)
    table = run.evidence_with_thresholds
    # a head's tags and primary type depend on the relations that are compared
    tags = tags_in_order(table)
    types_of: dict[tuple[int, int], list[str]] = {}
    for tag in tags.drop_duplicates([*HEAD, "type"]).itertuples():
        types_of.setdefault((tag.layer, tag.head), []).append(tag.type)
    joined, primary = [], []
    for head in run.heads.itertuples():
        types = types_of.get((head.layer, head.head), [])
        joined.append(";".join(types))
        primary.append(types[0] if types else UNCLASSIFIED)
    heads = run.heads.assign(tags=joined, primary=primary)
    return replace(run, heads=with_no_type(heads, table))


def _relation_ids(run: Result) -> pd.Series:
    return run.evidence["type"] + "/" + run.evidence["relation"]


def _left_out_notes(
    runs: Sequence[Result], names: Sequence[str], common: Collection[str]
) -> list[str]:
    """For each run with relations that are not compared, a note that names them.

    A type of which no relation is compared stands for its relations.
    """
    # whole types that are left out are counted, single relations named
    compared_types = {relation.split("/")[0] for relation in common}
    notes = []
    for run, name in zip(runs, names, strict=True):
        # what one run has alone cannot be compared, and its absence must not look like agreement
        left_out = [relation for relation in run.thresholds if relation not in common]
        if not left_out:
            continue
        counts: Counter[str] = Counter()
        single = []
        for relation in left_out:
            kind = relation.split("/")[0]
            if kind in compared_types:
                single.append(relation)
            else:
                counts[kind] += 1
        listed = [f"{kind} ({count})" for kind, count in counts.items()]
        listed += single
        notes.append(
            f"{len(common)} relations are compared; {len(left_out)} of {name} are not, because "
            f"not every run has them: {', '.join(listed)}"
        )
    return notes


def _notes(runs: Sequence[Result], names: Sequence[str]) -> Iterator[str]:
    first, first_name = runs[0], names[0]
    for run, name in zip(runs[1:], names[1:], strict=True):
        both = f"{name} and {first_name}"
        # a difference may come from the model, or from another text, engine or setting
        before = _inputs_of(first.info)
        after = _inputs_of(run.info)
        differences = [name for name in before | after if before.get(name) != after.get(name)]
        if differences:
            yield f"{both} differ in: {', '.join(differences)}"
        else:
            yield f"the records of {both} name the same model, engine, corpora and settings"
        # a text without queries for a relation says nothing about it
        in_one_alone = sorted(_measured(first) ^ _measured(run))
        if in_one_alone:
            others = "" if len(in_one_alone) == 1 else f" and {len(in_one_alone) - 1} more"
            relations = f"{in_one_alone[0]}{others}"
            yield f"only one of {first_name} and {name} had queries for {relations}"
        # another threshold changes tags though no number changes
        thresholds = {key: run.thresholds[key] for key in first.thresholds}
        if thresholds != first.thresholds:
            yield f"{both} have different thresholds"


def _measured(run: Result) -> set[str]:
    return set(_relation_ids(run))


def _inputs_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Facts on a run that a difference may come from, by their names."""
    inputs: dict[str, Any] = {}
    for name, value in info.get("model", {}).items():
        inputs[f"model {name}"] = value
    inputs["engine"] = info.get("engine")
    corpora = info.get("corpora", {})
    inputs["corpora"] = corpora.get("files")
    inputs.update(info.get("settings", {}))
    return inputs


def relation_changes(first: Result, other: Result) -> pd.DataFrame:
    """A row per head × relation that both runs have evidence for.

    `lift_difference` is other − first. `apart` is True if the 95 % intervals of the lift do not
    overlap and both runs have 50 queries.
    """
    columns = [*KEY, "n", "lift", "ci_low", "ci_high", "tagged"]
    before = first.evidence[columns]
    after = other.evidence[columns]
    table = before.merge(after, on=KEY, suffixes=("_first", ""))
    enough = table[["n_first", "n"]].min(axis=1) >= MIN_QUERIES
    higher = table["ci_low"] > table["ci_high_first"]
    lower = table["ci_high"] < table["ci_low_first"]
    return table.assign(
        lift_difference=table["lift"] - table["lift_first"],
        apart=enough & (higher | lower),
    )


def head_changes(first: Result, other: Result, relations: pd.DataFrame, name: str) -> pd.DataFrame:
    """A row per head in the order of the heads; see `compare` for the columns."""
    columns = [*HEAD, "primary", "tags"]
    before = first.heads[columns]
    after = other.heads[columns]
    heads = before.merge(after, on=HEAD, suffixes=("_first", ""))
    heads["run"] = name
    apart = relations[relations["apart"]]
    # a tag that one run gives and the other leaves open is neither gained nor lost; a change is
    # sure if the lifts are apart in the same direction
    left_open = _left_open(first, other) | _left_open(other, first)
    rises = apart["lift_difference"] > 0
    falls = apart["lift_difference"] < 0
    rose = _tags_of(apart[apart["tagged"] & rises])
    fell = _tags_of(apart[apart["tagged_first"] & falls])
    rows = []
    for row in heads.itertuples():
        old = _split(row.tags_first)
        new = _split(row.tags)
        differing = [tag for tag in (*new, *old) if (tag in new) != (tag in old)]
        undecided = [tag for tag in differing if (row.layer, row.head, tag) in left_open]
        decided = [tag for tag in differing if tag not in undecided]
        gained = [tag for tag in decided if tag in new]
        lost = [tag for tag in decided if tag in old]
        sure = [tag for tag in gained if (row.layer, row.head, tag) in rose]
        sure += [tag for tag in lost if (row.layer, row.head, tag) in fell]
        rows.append(
            {
                "gained": ";".join(gained),
                "lost": ";".join(lost),
                "undecided": ";".join(undecided),
                "sure": ";".join(sure),
            }
        )
    # changes of tags, and the number of relations whose lifts are apart
    tag_changes = pd.DataFrame(rows, index=heads.index, dtype=object)
    heads = heads.join(tag_changes)
    counts = apart.groupby(HEAD).size().rename("apart").reset_index()
    heads = heads.merge(counts, on=HEAD, how="left")
    heads["apart"] = heads["apart"].fillna(0).astype(int)
    # of each head the relation with the largest difference, changed tags first
    table = apart.assign(
        relation=apart["type"] + "/" + apart["relation"],
        is_same=apart["tagged"] == apart["tagged_first"],
        size=-apart["lift_difference"].abs(),
    )
    table = table.sort_values(["is_same", "size"], kind="stable")
    largest = table.drop_duplicates(HEAD)
    heads = heads.merge(largest[[*HEAD, "relation", "lift_difference"]], on=HEAD, how="left")
    heads["relation"] = heads["relation"].fillna("")
    in_order = heads.sort_values(HEAD)
    return in_order[STUDY.names].reset_index(drop=True)


def _split(tags: str) -> list[str]:
    return tags.split(";") if tags else []


def _left_open(run: Result, other: Result) -> set[HeadTag]:
    """Layer, head and type of tags of a run whose relation is undecided in the other run."""
    is_tagged = run.evidence["tagged"].astype(bool)
    tags = run.evidence.loc[is_tagged, KEY]
    verdicts = other.evidence[[*KEY, "verdict"]]
    rows = tags.merge(verdicts, on=KEY)
    return _tags_of(rows[rows["verdict"].isin(OPEN)])


def _tags_of(rows: pd.DataFrame) -> set[HeadTag]:
    return set(rows[["layer", "head", "type"]].itertuples(index=False, name=None))


def changed(heads: pd.DataFrame) -> pd.Series:
    """True for heads with another primary type or other tags.

    From `unclassified` to `not identifiable` a head does not change, nor from or to a type that is
    undecided in the other run.
    """
    had_no_type = heads["primary_first"].isin(NO_TYPE)
    has_no_type = heads["primary"].isin(NO_TYPE)
    # the primary type of one run may be undecided in the other
    is_open = np.zeros(len(heads), bool)
    for i, row in enumerate(heads.to_dict("records")):
        undecided = row["undecided"].split(";")
        is_open[i] = row["primary_first"] in undecided or row["primary"] in undecided
    stays_without_type = had_no_type & has_no_type
    is_other = heads["primary"] != heads["primary_first"]
    has_other_primary = is_other & ~stays_without_type & ~is_open
    has_other_tags = (heads["gained"] != "") | (heads["lost"] != "")
    return has_other_primary | has_other_tags


class Outcome(NamedTuple):
    """The heads that a condition such as `lost induction > 0` counts."""

    condition: str
    limit: int
    """Largest number of heads that passes."""
    heads: Sequence[str]

    @property
    def failed(self) -> bool:
        """More heads than the limit."""
        return len(self.heads) > self.limit

    def __str__(self) -> str:
        listed = shorten(", ".join(self.heads), 100) or "none"
        word = "FAILED" if self.failed else "passed"
        return f"{word}: {self.condition}: {len(self.heads)} heads: {listed}"


def condition_outcomes(comparison: StudyResult, conditions: Sequence[str]) -> list[Outcome]:
    """Apply conditions such as `lost induction > 0` to the result of `compare`.

    A condition is `changes`, `lost` or `gained`, optionally `sure` before and a head type after it,
    then `>` or `>=` and a number of heads.

    Raises:
        RunError: a condition of another form.
        ChoiceError: a condition names a type that the runs do not have.
    """
    return [_outcome(comparison, text) for text in conditions]


def _outcome(comparison: StudyResult, text: str) -> Outcome:
    # a condition that nobody can meet would pass for ever: other words are refused
    form = FORM.fullmatch(" ".join(text.split()))
    if form is None or (form[2] == "changes" and form[3]):
        raise RunError(
            f"--fail-on {text!r:.80} is not a condition; write for example 'lost induction > 0', "
            "'sure changes > 3', 'gained > 10' or 'sure lost coreference >= 1'"
        )
    only_sure, side, head_type, operator, number = form.groups()
    if head_type:
        check_choice("head type in these runs", head_type, comparison.values["types"])

    # heads that meet the condition
    several_runs = len(comparison.values["runs"]) > 2
    rows = comparison.table[changed(comparison.table)]
    heads = []
    for row in rows.to_dict("records"):
        if side == "changes":
            tags = _tag_set(row["gained"]) | _tag_set(row["lost"])
        else:
            tags = _tag_set(row[side])
        if head_type:
            tags &= {head_type}
        if only_sure:
            tags &= _tag_set(row["sure"])
        # a head may change its primary type alone
        counts_all = side == "changes" and not only_sure
        if tags or counts_all:
            name = head_name(row["layer"], row["head"])
            heads.append(f"{row['run']} {name}" if several_runs else name)
    # `>= 3` fails from 3 heads on, so that 2 pass
    limit = int(number) - 1 if operator == ">=" else int(number)
    return Outcome(condition=text, limit=limit, heads=heads)


def _tag_set(tags: str) -> set[str]:
    return set(_split(tags))
