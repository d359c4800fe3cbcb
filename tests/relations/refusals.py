"""Heads that are judged by one call, and what would refuse each by itself."""

from __future__ import annotations

import pandas as pd

from headscope.statistics.conditions import failures
from headscope.statistics.result import Result
from headscope.statistics.tags import with_rules

SHARED = "q value"
"""The condition that hangs on how many heads are judged beside one."""


def judged(run: Result) -> pd.DataFrame:
    """The evidence, and as `refused_alone` whether another condition fails than the shared one.

    Of a call with many lazy heads a q value says less of each than if it were judged by itself.
    """
    failed = failures(with_rules(run.evidence, run.rules)).drop(columns=SHARED)
    return run.evidence.assign(refused_alone=failed.any(axis=1).to_numpy())
