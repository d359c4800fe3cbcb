"""What a tag asks for, condition by condition, with the numbers of a head."""

from __future__ import annotations

from typing import Any

import pandas as pd

from headscope.evidence.conditions import CONDITIONS
from headscope.evidence.result import Result
from headscope.evidence.tags import with_rules


def ladders(run: Result) -> list[dict[str, Any]]:
    """Of each head the relations that it has a tag by or is shown by, each with its conditions.

    A condition is its name, what it says of the head, and whether it holds.
    """
    shown = {(e.layer, e.head, e.relation) for e in run.examples if e.relation}
    evidence = run.evidence
    table = with_rules(evidence, run.rules)  # of all rows: some conditions are of another's
    places = zip(table["layer"].tolist(), table["head"].tolist(), table["id"], strict=True)
    wanted = pd.Series([place in shown for place in places], index=table.index, dtype=bool)
    table = table[wanted | table["tagged"].astype(bool)]
    if table.empty:
        return []
    table = table.sort_values(["tagged", "lift"], ascending=False, kind="stable")
    asked = {c.name: None if c.asked is None else c.asked(table).astype(bool) for c in CONDITIONS}
    fails = {c.name: c.fails(table) for c in CONDITIONS}
    return [
        {
            "layer": int(row["layer"]),
            "head": int(row["head"]),
            "relation": row["id"],
            "steps": [
                [c.name, c.say(row), int(not fails[c.name].iloc[i])]
                for c in CONDITIONS
                if (where := asked[c.name]) is None or where.iloc[i]
            ],
        }
        for i, row in enumerate(table.to_dict("records"))
    ]
