"""Thresholds of every tag, as `run.json` records them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.measure.bootstrap import LEVEL, RESAMPLES
from headscope.measure.tally import BLOCKS, MIN_BLOCKS
from headscope.relations.relation import MIN_QUERIES, RELIABLE
from headscope.relations.sink import PARTIAL
from headscope.statistics.conditions import CONDITIONS, MAX_P, MAX_Q, TIMES_CONTROL
from headscope.statistics.general_labels import TIMES_LABEL
from headscope.statistics.relation_sums import TWIN_PERCENTILE, TWIN_QUERIES

THRESHOLDS: Mapping[str, Any] = {
    "conditions": [condition.name for condition in CONDITIONS],
    "min_queries": MIN_QUERIES,
    "max_q_value": MAX_Q,
    "max_contested_p": MAX_P,
    "times_control": TIMES_CONTROL,
    "times_label": TIMES_LABEL,
    "partial_sink": PARTIAL,
    "blocks": BLOCKS,
    "min_blocks": MIN_BLOCKS,
    "interval": LEVEL,
    "resamples": RESAMPLES,
    "reliable": RELIABLE,
    "twin_percentile": TWIN_PERCENTILE,
    "twin_queries": TWIN_QUERIES,
}
