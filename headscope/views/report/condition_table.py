"""Conditions that a tag asks for, one by one, with the numbers of a head."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headscope.statistics.conditions import CONDITIONS
from headscope.statistics.result import Result
from headscope.statistics.tags import with_rules


def ladders(run: Result) -> list[dict[str, Any]]:
    """Relations that each head has a tag by or is shown by, with their conditions.

    A condition is its name, what it says of the head, and whether it holds.
    """
    examples_of = {(e.layer, e.head, e.relation) for e in run.examples if e.relation}
    evidence = run.evidence
    table = with_rules(evidence, run.rules)  # of all rows: some conditions are of another's
    places = zip(table["layer"].tolist(), table["head"].tolist(), table["id"], strict=True)
    with_examples = pd.Series(
        [row_id in examples_of for row_id in places], index=table.index, dtype=bool
    )
    table = table[with_examples | table["tagged"].astype(bool)]
    if table.empty:
        return []
    table = table.sort_values(["tagged", "lift"], ascending=False, kind="stable")
    applicable = {
        c.name: None if c.applies is None else c.applies(table).astype(bool) for c in CONDITIONS
    }
    fails = {c.name: c.fails(table) for c in CONDITIONS}
    return [
        {
            "layer": int(row["layer"]),
            "head": int(row["head"]),
            "relation": row["id"],
            "steps": [
                [
                    c.name,
                    c.account(row, fails=bool(fails[c.name].iloc[i])),
                    int(not fails[c.name].iloc[i]),
                ]
                for c in CONDITIONS
                if (where := applicable[c.name]) is None or where.iloc[i]
            ],
        }
        for i, row in enumerate(table.to_dict("records"))
    ]
