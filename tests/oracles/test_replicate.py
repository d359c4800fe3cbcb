"""Tables on two runs: counted by hand, and those of a run beside itself."""

from __future__ import annotations

import numpy as np
import pandas as pd

import headscope as hs
from headscope.statistics.tags import INCONCLUSIVE, NO, TAGGED
from tests.oracles.replicate import (
    agreement,
    beside,
    came_again,
    chain,
    flips,
    judged_rows,
    summary,
)


def rows_of(verdicts: dict[int, str], weak: set[int], noisy: set[int]) -> pd.DataFrame:
    """Rows of six heads for one relation: `mass` fails at weak heads, `q value` at noisy ones."""
    heads = range(6)
    return pd.DataFrame(
        {
            "layer": 0,
            "head": heads,
            "id": "t/r",
            "type": "t",
            "verdict": [verdicts.get(head, NO) for head in heads],
            "replicates": [0.5 + 0.08 * head for head in heads],
            "mass": [head in weak for head in heads],
            "q value": [head in noisy for head in heads],
        }
    )


def test_tables_are_those_counted_by_hand():
    first = rows_of({0: TAGGED, 1: TAGGED, 2: TAGGED}, weak={4, 5}, noisy={3})
    second = rows_of({0: TAGGED, 3: TAGGED, 1: INCONCLUSIVE}, weak={2, 4, 5}, noisy={1})
    rows = beside(first, second)
    table = agreement(rows).loc["t"]
    assert table[["first", "second", "both"]].tolist() == [3, 2, 1]
    assert table["Jaccard of tags"] == 1 / 4
    assert table["no in the other"] == 2
    by_condition = chain(rows, ["mass", "q value"]).loc["t"]
    assert by_condition.tolist() == [3 / 4, 1 / 4]
    # heads 0 and 1 are predicted at .5 and .58, 2 and 3 at .66 and .74
    predicted = came_again(rows)
    assert predicted["tags"].tolist() == [3, 1, 1, 0, 0]
    assert predicted["came again"].iloc[:3].tolist() == [2 / 3, 0, 0]
    assert flips(rows, ["mass", "q value"]).loc["t"].to_dict() == {"mass": 1, "q value": 2}


def test_a_run_agrees_with_itself_and_not_with_one_of_smaller_masses(mini_run):
    run = hs.load(mini_run)
    same = agreement(beside(judged_rows(run), judged_rows(run)))
    assert len(same) >= 3
    assert (same["Jaccard of tags"] == 1).all()
    assert (same["no in the other"] == 0).all()
    weak = judged_rows(run)
    is_tag = weak["verdict"] == TAGGED
    weak.loc[is_tag, "mass"] = True
    weak.loc[is_tag, "verdict"] = NO
    rows = beside(judged_rows(run), weak)
    assert (agreement(rows)["no in the other"] == same["first"]).all()
    assert list(flips(rows, run.info["thresholds"]["conditions"])) == ["mass"]
    assert np.isfinite(chain(rows, ["mass"])["mass"]).any()
    assert "Jaccard" in summary(run, run)
