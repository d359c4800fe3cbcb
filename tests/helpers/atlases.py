"""Atlases beside the runs that they are of."""

from __future__ import annotations

import pandas as pd

from headscope.statistics.result import Result

FINE = ["chance", "mass_error", "control_error"]
"""Columns with values far below 0.1."""


def assert_equal_within_rounding(atlas: Result, run: Result) -> None:
    """The tables of an atlas are those of its run but for the decimals that it leaves out.

    It keeps four decimals, six of `FINE`, and three digits of q values.
    """
    for small, whole in ((atlas.heads, run.heads), (atlas.evidence, run.evidence)):
        fine = [column for column in FINE if column in whole]
        shares = whole.select_dtypes("float").columns.difference([*fine, "q_value"])
        exact = whole.columns.difference([*shares, *fine, "q_value"])
        pd.testing.assert_frame_equal(small[exact], whole[exact])
        for columns, most in ((list(shares), 0.0000505), (fine, 0.000000505)):
            pd.testing.assert_frame_equal(small[columns], whole[columns], rtol=0, atol=most)
        pd.testing.assert_series_equal(small["q_value"], whole["q_value"], rtol=0.0051, atol=0)
