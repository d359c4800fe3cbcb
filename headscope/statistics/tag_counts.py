"""Numbers of tags at the thresholds of a run, and at lower and higher ones."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from headscope.relations import head_types
from headscope.statistics.conditions import failures
from headscope.statistics.replication import replicates

LOWER, HIGHER = 0.9, 1.1


@dataclass(frozen=True)
class TagCounts:
    """Numbers of tags, a head once for each type, with thresholds a tenth lower and higher."""

    lower: int
    now: int
    higher: int


def tag_counts(table: pd.DataFrame) -> dict[str, TagCounts]:
    """The tags of functional types, and those of attention sinks, by what they are called.

    Sinks are counted separately, because they are many. Kinds without a tag at the lower
    thresholds are left out.

    Args:
        table: evidence with its thresholds.
    """
    # types of other packages may be attention sinks too
    sink_types = [kind.name for kind in head_types().values() if not kind.functional]
    of_sinks = table["type"].isin(sink_types)
    counts = {}
    for noun, rows in (
        ("tags", table[~of_sinks]),
        ("tags of attention sinks", table[of_sinks]),
    ):
        count = TagCounts(
            lower=_tags_at(rows, LOWER),
            now=_tags_at(rows, 1.0),
            higher=_tags_at(rows, HIGHER),
        )
        if count.lower:
            counts[noun] = count
    return counts


def _tags_at(table: pd.DataFrame, factor: float) -> int:
    """Heads with a tag of each type, summed over types, by thresholds times a factor."""
    varied = table.assign(threshold=table["threshold"] * factor)
    varied = varied.assign(replicates=replicates(varied))
    tagged = varied[~failures(varied).any(axis=1)]
    return len(tagged.drop_duplicates(["type", "layer", "head"]))
