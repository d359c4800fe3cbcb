"""Choosing heads of a run, and writing them for other programs."""

from __future__ import annotations

import pandas as pd

from headscope.errors import ChoiceError, HeadscopeError
from headscope.heads import head_name, parse_head
from headscope.runs.tables import table_to_csv
from headscope.statistics.head_lists import strongest
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE, is_sink, reasons, with_rules

Head = tuple[int, int]
"""A layer and the number of a head in it."""
_OF_THE_TYPE = (
    "relation",
    "control",
    "lift",
    "ci_low",
    "ci_high",
    "q_value",
    "reason",
    "mass",
)


def list_heads(run: Result, tag: str | None = None) -> pd.DataFrame:
    """The heads with this tag, the strongest first; or all, or those without a tag, by their lift.

    Those are `unclassified` or `not identifiable`. The numbers of a tag are those of
    its own type, which need not be the head's primary one.

    Raises:
        ChoiceError: the run scored no such type.
    """
    heads = run.heads
    if tag in NO_TYPE:
        heads = heads[heads["primary"] == tag]
    elif tag is not None:
        types = sorted(set(run.evidence["type"]))
        if tag not in types:
            raise ChoiceError("head type", tag, [*types, *NO_TYPE])
        best = strongest(run.evidence)
        best = with_rules(best[best["type"] == tag], run.rules)
        best["reason"] = reasons(best, run.rules)
        scores = best[["layer", "head", *_OF_THE_TYPE]]
        keep = [column for column in heads.columns if column not in _OF_THE_TYPE]
        return scores.merge(heads[keep], on=["layer", "head"])[list(run.heads.columns)]
    return heads.sort_values("lift", ascending=False, kind="stable")


def clearest_head(run: Result) -> str:
    """The name of the tagged head with the largest lift, before those that only rest.

    Where no head has a tag it is the one with the largest lift of all.
    """
    best = strongest(run.evidence)
    row = (best if len(best) else list_heads(run)).iloc[0]
    return head_name(int(row["layer"]), int(row["head"]))


def tagged_types(run: Result) -> dict[str, list[Head]]:
    """For each type the heads that hold a tag of it, the sink's left out."""
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    tagged = tagged[~is_sink(tagged["type"] + "/" + tagged["relation"])]
    heads_by_type: dict[str, list[Head]] = {}
    for row in tagged[["type", "layer", "head"]].drop_duplicates().itertuples():
        heads_by_type.setdefault(str(row.type), []).append((int(row.layer), int(row.head)))
    return heads_by_type


def chosen_heads(run: Result, heads: str) -> list[Head]:
    """The heads that are asked about.

    Args:
        run: the run.
        heads: `tagged`, `all`, or names such as `L5H1,L6H9`.

    Raises:
        HeadscopeError: a name is none of the run's heads, or no head of the run is tagged.
    """
    known = [(int(layer), int(head)) for layer, head in run.heads[["layer", "head"]].to_numpy()]
    if heads in ("tagged", "all"):
        tagged = {head for tagged_heads in tagged_types(run).values() for head in tagged_heads}
        selected = [head for head in known if heads == "all" or head in tagged]
    else:
        selected = [parse_head(name) for name in heads.split(",")]
        for head in selected:
            if head not in known:
                last = head_name(*known[-1])
                raise HeadscopeError(f"no head {head_name(*head)} in this run; up to {last}")
    if not selected:
        raise HeadscopeError("no head of this run has a tag; name heads, or ask for --heads all")
    return selected


def selected_heads(run: Result, heads: str) -> list[Head]:
    """The heads of a type or of a relation, or those that `chosen_heads` gives.

    Args:
        run: the run.
        heads: a type such as `induction`, a relation such as `positional/offset-1`, `tagged`,
            `all`, or names such as `L5H1,L6H9`.

    Raises:
        ChoiceError: the run scored no such type or relation.
        HeadscopeError: no head has such a tag; or see `chosen_heads`.
    """
    types = sorted(set(run.evidence["type"]))
    relations = run.evidence["type"] + "/" + run.evidence["relation"]
    if heads.partition("/")[0] in types:
        rows = (run.evidence["type"] == heads) | (relations == heads)
        if not rows.any():
            kind = heads.partition("/")[0]
            choices = relations[run.evidence["type"] == kind].unique()
            raise ChoiceError("relation", heads, [kind, *sorted(choices)])
    elif heads in ("tagged", "all") or any(map(str.isdigit, heads)):
        return chosen_heads(run, heads)
    else:
        raise ChoiceError("type of heads", heads, ["tagged", "all", *types])
    tagged = run.evidence[rows & run.evidence["tagged"].astype(bool)]
    if tagged.empty:
        raise HeadscopeError(f"no head of this run has a tag of {heads}")
    places = tagged[["layer", "head"]].drop_duplicates().sort_values(["layer", "head"])
    return [(int(layer), int(head)) for layer, head in places.to_numpy()]


def write_heads(heads: pd.DataFrame, format: str) -> str:
    """The heads as `csv` or `json` (a list of objects)."""
    if format == "csv":
        return table_to_csv(heads)
    return str(heads.to_json(orient="records", indent=1, force_ascii=False)) + "\n"
