"""Shares of heads by relative depth, so that models of any shape can stand side by side."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import NO_TYPE, countable_types

BINS = 5
COLUMNS = ["run", "depth_low", "depth_high", "type", "count", "heads", "share"]


def depth_shares(
    runs: Sequence[Result], names: Sequence[str], types: Sequence[str], *, bins: int = BINS
) -> pd.DataFrame:
    """For each run, stretch of depth and type the share of the stretch's heads.

    Depth is layer / (layers − 1), in [0, 1]; a model of one layer lies at 0. Stretches are equally
    long and hold their lower end; the last holds 1 too. There are `bins` of them, or as many as
    the shallowest model has layers with heads. The shares of a stretch sum to 1; a stretch of a
    hybrid model may have no heads, and then it has no shares. `count` and `share` are missing where
    the run could give no tag of the type: its text had too few queries for it.

    Args:
        runs: the runs.
        names: what to call them.
        types: the types to count, which should be all that are some head's primary.
        bins: stretches of depth.
    """
    bins = min([bins, *(len(layers_of(run)) for run in runs)])
    rows = []
    for run, name in zip(runs, names, strict=True):
        # in whole numbers: 3 / 5 is no exact fraction of a float
        last = max(_depth_of(run) - 1, 1)
        interval = (run.heads["layer"] * bins // last).clip(upper=bins - 1)
        measured = {*countable_types(run.evidence, run.rules), *NO_TYPE}
        for number in range(bins):
            primary = run.heads["primary"][interval == number]
            ends = number / bins, (number + 1) / bins
            for kind in types:
                count = int((primary == kind).sum()) if kind in measured else None
                share = None if count is None or primary.empty else count / len(primary)
                rows.append((name, *ends, kind, count, len(primary), share))
    return pd.DataFrame(rows, columns=COLUMNS).astype({"count": "Int64", "share": float})


def _depth_of(run: Result) -> int:
    """The number of the run's model's layers; of a hybrid also those that have no heads."""
    last = int(run.heads["layer"].max()) + 1
    return max(last, int(run.info.get("model", {}).get("layers", last)))
