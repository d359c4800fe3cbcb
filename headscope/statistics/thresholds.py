"""Thresholds of every tag, as `run.json` records them, and how many tags depend on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from headscope.measure.bootstrap import LEVEL, RESAMPLES
from headscope.measure.tally import BLOCKS, MIN_BLOCKS
from headscope.relations import head_types
from headscope.relations.relation import MIN_QUERIES, RELIABLE, TagThresholds
from headscope.relations.types.sink import PARTIAL
from headscope.statistics.conditions import (
    CONDITIONS,
    MAX_Q,
    MIN_HARD,
    failures,
)
from headscope.statistics.general_labels import TIMES_LABEL
from headscope.statistics.tags import with_thresholds
from headscope.statistics.wording import TIMES_CONTROL

THRESHOLDS: Mapping[str, Any] = {
    "conditions": [condition.name for condition in CONDITIONS],
    "min_queries": MIN_QUERIES,
    "max_q_value": MAX_Q,
    "min_hard_queries": MIN_HARD,
    "times_control": TIMES_CONTROL,
    "times_label": TIMES_LABEL,
    "partial_sink": PARTIAL,
    "blocks": BLOCKS,
    "min_blocks": MIN_BLOCKS,
    "interval": LEVEL,
    "resamples": RESAMPLES,
    "reliable": RELIABLE,
}


LOWER, HIGHER = 0.9, 1.1


def threshold_sensitivity(evidence: pd.DataFrame, thresholds: Mapping[str, TagThresholds]) -> str:
    """Sentence on the tags lost if thresholds are a tenth higher, and won if they are a tenth
    lower.

    A head counts once for each type. Attention sinks are counted separately, because they are many.
    """
    table = with_thresholds(evidence, thresholds)
    sinks = [kind.name for kind in head_types().values() if not kind.functional]
    clauses = []
    for noun, rows in (
        ("tags", table[~table["type"].isin(sinks)]),
        ("tags of attention sinks", table[table["type"].isin(sinks)]),
    ):
        lower, now, higher = (_tags(rows, factor) for factor in (LOWER, 1.0, HIGHER))
        if lower:
            clauses.append(
                f"thresholds 10 % higher take {now - higher} of {now} {noun} away, "
                f"thresholds 10 % lower add {lower - now}"
            )
    return "; ".join(clauses).capitalize() + "." * bool(clauses)


def _tags(table: pd.DataFrame, factor: float) -> int:
    """Heads with a tag of each type, summed over types, if thresholds are multiplied by a
    factor.
    """
    varied = table.assign(threshold=table["threshold"] * factor)
    tagged = varied[~failures(varied).any(axis=1)]
    return len(tagged.drop_duplicates(["type", "layer", "head"]))
