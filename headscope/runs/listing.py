"""Choosing heads of a run."""

from __future__ import annotations

import pandas as pd

from headscope.errors import ChoiceError, RunError, check_choice
from headscope.heads import head_name
from headscope.statistics.columns import REPLICATES
from headscope.statistics.head_lists import strongest
from headscope.statistics.in_words import reasons
from headscope.statistics.reasons import head_in
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE, is_sink

Head = tuple[int, int]
"""A layer and the number of a head in it."""
ALL_HEADS = "all"
"""The word that selects every head of a run."""
_NUMBERS_OF_TAG = (
    "relation",
    "control",
    "lift",
    "ci_low",
    "ci_high",
    "q_value",
    "reason",
    "mass",
    REPLICATES,
)


def list_heads(run: Result, tag: str | None = None, *, replicates: float = 0.0) -> pd.DataFrame:
    """The heads with this tag, the strongest first; all heads by their lift if it is None.

    Heads without a tag are `unclassified` or `not identifiable`. The numbers of a tag are those of
    its own type, which need not be the head's primary one. With `replicates` only heads of which
    another text gives this tag with at least this probability.

    Raises:
        ChoiceError: the run scored no such type.
    """
    heads = run.heads
    if tag is not None and tag not in NO_TYPE:
        # heads with a tag of a type show the numbers of this tag
        types = sorted(set(run.evidence["type"]))
        check_choice("head type", tag, [*types, *NO_TYPE])
        tags = strongest(run.evidence_with_thresholds)
        tags = tags[tags["type"] == tag]
        tags = tags.assign(reason=reasons(tags))
        numbers = tags[["layer", "head", *_NUMBERS_OF_TAG]]
        others = [column for column in run.heads.columns if column not in _NUMBERS_OF_TAG]
        table = numbers.merge(run.heads[others], on=["layer", "head"])
        heads = table[list(run.heads.columns)]
    elif tag is not None:
        heads = heads[heads["primary"] == tag]
    # of the tagged ones those that come out again
    if replicates > 0:
        is_tagged = heads["tags"] != ""
        heads = heads[is_tagged & (heads[REPLICATES] >= replicates)]
    return heads.sort_values("lift", ascending=False, kind="stable")


def clearest_head(run: Result) -> str:
    """The name of the tagged head with the largest lift, or of any head if none is tagged.

    Heads that are tagged as attention sinks alone come last.
    """
    best = strongest(run.evidence)
    row = (best if len(best) else list_heads(run)).iloc[0]
    return head_name(int(row["layer"]), int(row["head"]))


def tagged_types(run: Result) -> dict[str, list[Head]]:
    """Heads with a tag of each type, attention sinks left out."""
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    relations = tagged["type"] + "/" + tagged["relation"]
    functional = tagged[~is_sink(relations)]
    heads = functional[["type", "layer", "head"]].drop_duplicates()
    heads_by_type: dict[str, list[Head]] = {}
    for row in heads.itertuples():
        head = (int(row.layer), int(row.head))
        heads_by_type.setdefault(str(row.type), []).append(head)
    return heads_by_type


def selected_heads(run: Result, heads: str) -> list[Head]:
    """The heads that are asked about, in the order of the run, or of their names.

    Args:
        run: the run.
        heads: `tagged`, `all`, a type such as `induction`, a relation such as
            `positional/offset-1`, or names such as `L5H1,L6H9`.

    Raises:
        ChoiceError: the run scored no such type or relation.
        RunError: a name is not one of the run's heads, or no head has such a tag.
    """
    # a type, a relation, or names of heads
    known = _heads_in(run.heads)
    types = run.evidence["type"]
    relations = types + "/" + run.evidence["relation"]
    kind = heads.partition("/")[0]
    if heads == ALL_HEADS:
        return known
    if heads == "tagged":
        tagged = set()
        for heads_of_type in tagged_types(run).values():
            tagged.update(heads_of_type)
    elif heads in set(types) | set(relations):
        is_match = (types == heads) | (relations == heads)
        is_tagged = run.evidence["tagged"].astype(bool)
        tagged = set(_heads_in(run.evidence[is_tagged & is_match]))
    elif kind not in set(types) and any(map(str.isdigit, heads)):
        return list(dict.fromkeys(head_in(run, name) for name in heads.split(",")))
    else:
        choices = sorted(set(relations[types == kind])) or sorted(set(types))
        raise ChoiceError("type or relation", heads, ["tagged", ALL_HEADS, *choices])
    # an empty selection is a mistake of the caller
    if not tagged:
        tag = "a tag" if heads == "tagged" else f"a tag of {heads}"
        raise RunError(f"no head of this run has {tag}; name heads, or use --heads {ALL_HEADS}")
    return [head for head in known if head in tagged]


def _heads_in(rows: pd.DataFrame) -> list[Head]:
    """The head of each row."""
    positions = rows[["layer", "head"]].to_numpy()
    return [(int(layer), int(head)) for layer, head in positions]
