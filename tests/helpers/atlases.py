"""Atlases beside the runs that they are of."""

from __future__ import annotations

import pandas as pd

from data.atlas.pack import DECIMALS, FINER
from headscope.statistics.result import Result


def assert_equal_within_rounding(atlas: Result, run: Result) -> None:
    """The tables of an atlas are those of its run but for the decimals that it leaves out."""
    for small, whole in ((atlas.heads, run.heads), (atlas.evidence, run.evidence)):
        is_share = [c for c in whole.select_dtypes("float") if c not in {*FINER, "q_value"}]
        half = 0.5 * 10**-DECIMALS
        pd.testing.assert_frame_equal(small[is_share], whole[is_share], rtol=0, atol=1.01 * half)
        pd.testing.assert_series_equal(small["q_value"], whole["q_value"], rtol=0.0051, atol=0)
        exact = whole.columns.difference([*is_share, *FINER, "q_value"])
        pd.testing.assert_frame_equal(small[exact], whole[exact])
