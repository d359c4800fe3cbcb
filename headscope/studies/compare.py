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

from headscope.errors import ChoiceError, RunError
from headscope.heads import head_name
from headscope.relations.relation import MIN_QUERIES
from headscope.runs.resolve import RunName, run_names, the_run
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import NO_TYPE, OPEN, UNCLASSIFIED, tags_in_order, with_no_type
from headscope.studies.study import Study, study, table_columns
from headscope.views.colours import types_in_order
from headscope.views.study_figure import HeatMap
from headscope.views.study_result import StudyResult

KEY = ["layer", "head", "type", "relation"]
FORM = re.compile(
    r"(sure )?(changes|lost|gained)(?: ([a-z][a-z0-9-]*))?\s*(>=(?!\s*0*$)|>)\s*(\d{1,6})"
)


STUDY = Study(
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
    if len(runs) < 2:
        raise RunError(f"compare takes two runs or more, and {len(runs)} came")
    loaded, names = list(map(the_run, runs)), run_names(runs)
    _check_shapes(loaded, names)
    common = _common_relations(loaded, names)
    restricted = [_of_relations(run, common) for run in loaded]
    first = restricted[0]
    tables = [
        head_changes(first, run, relation_changes(first, run), name)
        for run, name in zip(restricted[1:], names[1:], strict=True)
    ]
    table = pd.concat(tables, ignore_index=True)
    rows = table[changed(table)]
    unsure, size = rows["sure"] == "", -rows["lift_difference"].abs().fillna(0)
    order = rows.assign(unsure=unsure, size=size).sort_values(["unsure", "size"], kind="stable")
    hidden = ("undecided", "apart", "run" if len(loaded) == 2 else "")
    types = {name.split("/")[0] for name in common}
    left_out = _left_out_notes(loaded, names, common)
    return StudyResult(
        title=f"{', '.join(names[1:])} compared with {names[0]}: {len(rows)} of {len(table)} heads "
        "changed their tags",
        table=table,
        terminal_table=order[[column for column in STUDY.names if column not in hidden]],
        notes=[*left_out, *_notes(restricted, names)],
        values={"runs": names, "types": types_in_order(types | {UNCLASSIFIED})},
        draw=partial(STUDY.draw, table=table.assign(changed=changed(table))),
    )


def _check_shapes(runs: Sequence[Result], names: Sequence[str]) -> None:
    shape = (layers_of(runs[0]), int(runs[0].heads["head"].max()))
    for run, name in zip(runs[1:], names[1:], strict=True):
        if shape != (layers_of(run), int(run.heads["head"].max())):
            raise RunError(
                f"{names[0]} and {name} differ in layers or heads; compare takes runs of models "
                "with the same layers and heads"
            )


def _common_relations(runs: Sequence[Result], names: Sequence[str]) -> set[str]:
    """Full names of the relations that every run has."""
    common = set.intersection(*(set(run.thresholds) for run in runs))
    if not common:
        raise RunError(
            f"{', '.join(names)} have no relation in common; classify all with the same --types"
        )
    return common


def _of_relations(run: Result, relations: Collection[str]) -> Result:
    """The run as if it had these relations alone: its evidence, its heads' tags and primaries."""
    if run.thresholds.keys() == set(relations):
        return run
    evidence = run.evidence[_relation_ids(run).isin(relations)]
    thresholds = {name: run.thresholds[name] for name in run.thresholds if name in relations}
    types_of: dict[tuple[int, int], list[str]] = {}
    ordered_tags = tags_in_order(evidence, thresholds).drop_duplicates(["layer", "head", "type"])
    for row in ordered_tags.itertuples():
        types_of.setdefault((row.layer, row.head), []).append(row.type)
    types = [types_of.get((row.layer, row.head), []) for row in run.heads.itertuples()]
    heads = run.heads.assign(
        tags=[";".join(names) for names in types],
        primary=[names[0] if names else UNCLASSIFIED for names in types],
    )
    heads = with_no_type(heads, evidence, thresholds)
    return replace(run, evidence=evidence, thresholds=thresholds, heads=heads)


def _relation_ids(run: Result) -> pd.Series:
    return run.evidence["type"] + "/" + run.evidence["relation"]


def _left_out_notes(
    runs: Sequence[Result], names: Sequence[str], common: Collection[str]
) -> list[str]:
    """For each run with relations that are not compared, a note that names them.

    A type of which no relation is compared stands for its relations.
    """
    compared_types = {name.split("/")[0] for name in common}
    notes = []
    for run, name in zip(runs, names, strict=True):
        others = [relation for relation in run.thresholds if relation not in common]
        whole_types = Counter(relation.split("/")[0] for relation in others)
        listed = [f"{kind} ({n})" for kind, n in whole_types.items() if kind not in compared_types]
        listed += [relation for relation in others if relation.split("/")[0] in compared_types]
        if others:
            notes.append(
                f"{len(common)} relations are compared; {len(others)} of {name} are not, because "
                f"not every run has them: {', '.join(listed)}"
            )
    return notes


def _notes(runs: Sequence[Result], names: Sequence[str]) -> Iterator[str]:
    first, known = runs[0], _measured(runs[0])
    for run, name in zip(runs[1:], names[1:], strict=True):
        one, other = _facts(first.info), _facts(run.info)
        facts = [fact for fact in one | other if one.get(fact) != other.get(fact)]
        if facts:
            yield f"{name} and {names[0]} differ in: {', '.join(facts)}"
        else:
            yield (
                f"the records of {name} and {names[0]} name the same model, engine, corpora and "
                "settings"
            )
        if odd := sorted(known ^ _measured(run)):
            others = "" if len(odd) == 1 else f" and {len(odd) - 1} more"
            yield f"only one of {names[0]} and {name} had queries for {odd[0]}{others}"
        if any(limits != run.thresholds[key] for key, limits in first.thresholds.items()):
            yield f"{name} and {names[0]} have different thresholds"


def _measured(run: Result) -> set[str]:
    return set(_relation_ids(run))


def _facts(info: Mapping[str, Any]) -> dict[str, Any]:
    """Facts on a run that a difference may come from, by their names."""
    facts = {f"model {name}": value for name, value in info.get("model", {}).items()}
    facts |= {"engine": info.get("engine"), "corpora": info.get("corpora", {}).get("files")}
    settings: dict[str, Any] = info.get("settings", {})
    return facts | settings


def relation_changes(first: Result, other: Result) -> pd.DataFrame:
    """A row per head × relation that both runs have evidence for.

    `lift_difference` is other − first. `apart` is True if the 95 % intervals of the lift do not
    overlap and both runs have 50 queries.
    """
    columns = ["n", "lift", "ci_low", "ci_high", "tagged"]
    table = first.evidence[[*KEY, *columns]].merge(
        other.evidence[[*KEY, *columns]], on=KEY, suffixes=("_first", "")
    )
    enough = table[["n_first", "n"]].min(axis=1) >= MIN_QUERIES
    higher = table["ci_low"] > table["ci_high_first"]
    lower = table["ci_high"] < table["ci_low_first"]
    return table.assign(
        lift_difference=table["lift"] - table["lift_first"], apart=enough & (higher | lower)
    )


def head_changes(first: Result, other: Result, relations: pd.DataFrame, name: str) -> pd.DataFrame:
    """A row per head in the order of the heads; see `compare` for the columns."""
    key = ["layer", "head"]
    columns = [*key, "primary", "tags"]
    heads = first.heads[columns].merge(other.heads[columns], on=key, suffixes=("_first", ""))
    positions = list(zip(heads["layer"], heads["head"], strict=True))
    left_open = _left_open(first, other) | _left_open(other, first)
    apart = relations[relations["apart"]]
    rose = _tags_of(apart[apart["tagged"] & (apart["lift_difference"] > 0)])
    fell = _tags_of(apart[apart["tagged_first"] & (apart["lift_difference"] < 0)])
    rows = []
    for at, before, after in zip(positions, heads["tags_first"], heads["tags"], strict=True):
        old, new = (tags.split(";") if tags else [] for tags in (before, after))
        differing = [tag for tag in (*new, *old) if (tag in new) != (tag in old)]
        undecided = [tag for tag in differing if (*at, tag) in left_open]
        gained = [tag for tag in new if tag in differing and tag not in undecided]
        lost = [tag for tag in old if tag in differing and tag not in undecided]
        sure = [tag for tag in gained if (*at, tag) in rose]
        sure += [tag for tag in lost if (*at, tag) in fell]
        rows.append([";".join(tags) for tags in (gained, lost, undecided, sure)])
    largest = apart.assign(
        relation=apart["type"] + "/" + apart["relation"],
        is_same=apart["tagged"] == apart["tagged_first"],
        size=-apart["lift_difference"].abs(),
    )
    largest = largest.sort_values(["is_same", "size"], kind="stable").drop_duplicates(key)
    heads[["gained", "lost", "undecided", "sure"]] = pd.DataFrame(rows, dtype=object)
    heads = heads.assign(
        run=name, apart=pd.Series(positions).map(apart.groupby(key).size()).fillna(0).astype(int)
    ).merge(largest[[*key, "relation", "lift_difference"]], on=key, how="left")
    heads["relation"] = heads["relation"].fillna("")
    return heads.sort_values(key)[STUDY.names].reset_index(drop=True)


def _left_open(run: Result, other: Result) -> set[tuple[int, int, str]]:
    """Layer, head and type of tags of a run whose relation is undecided in the other run."""
    tags = run.evidence[run.evidence["tagged"].astype(bool)]
    rows = tags[KEY].merge(other.evidence[[*KEY, "verdict"]], on=KEY)
    return _tags_of(rows[rows["verdict"].isin(OPEN)])


def _tags_of(rows: pd.DataFrame) -> set[tuple[int, int, str]]:
    return set(rows[["layer", "head", "type"]].itertuples(index=False, name=None))


def changed(heads: pd.DataFrame) -> pd.Series:
    """True for heads with another primary type or other tags.

    From `unclassified` to `not identifiable` a head does not change, nor from or to a type that is
    undecided in the other run.
    """
    had_no_type = heads["primary_first"].isin(NO_TYPE)
    has_no_type = heads["primary"].isin(NO_TYPE)
    other_primary = heads["primary"] != heads["primary_first"]
    is_open = np.array([_has_open_primary(row) for row in heads.to_dict("records")], bool)
    other_primary &= ~(had_no_type & has_no_type) & ~is_open
    return other_primary | (heads["gained"] != "") | (heads["lost"] != "")


def _has_open_primary(row: Mapping[Any, Any]) -> bool:
    """True if the primary type of one run is undecided in the other."""
    undecided = row["undecided"].split(";")
    return row["primary_first"] in undecided or row["primary"] in undecided


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
    types = comparison.values["types"]
    return [_outcome(comparison, text, _parsed(text, types)) for text in conditions]


def _parsed(text: str, types: Sequence[str]) -> re.Match[str]:
    match = FORM.fullmatch(" ".join(text.split()))
    if match is None or (match[2] == "changes" and match[3]):
        raise RunError(
            f"--fail-on {text!r:.80} is not a condition; write for example 'lost induction > 0', "
            "'sure changes > 3', 'gained > 10' or 'sure lost coreference >= 1'"
        )
    if match[3] and match[3] not in types:
        raise ChoiceError("head type in these runs", match[3], types)
    return match


def _outcome(comparison: StudyResult, text: str, form: re.Match[str]) -> Outcome:
    only_sure, side, head_type, operator, number = form.groups()
    several = len(comparison.values["runs"]) > 2
    names = []
    for row in comparison.table[changed(comparison.table)].to_dict("records"):
        tags = {name: {*row[name].split(";")} - {""} for name in ("gained", "lost", "sure")}
        tags["changes"] = tags["gained"] | tags["lost"]
        counted = tags[side] & {head_type} if head_type else tags[side]
        counted &= tags["sure"] if only_sure else counted
        # a head may change its primary type alone
        if counted or (side == "changes" and not only_sure):
            name = head_name(row["layer"], row["head"])
            names.append(f"{row['run']} {name}" if several else name)
    return Outcome(text, int(number) - (operator == ">="), names)
