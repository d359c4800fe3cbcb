"""Tags under other floors are those that the rules give with them."""

from __future__ import annotations

from dataclasses import replace

import headscope as hs
from headscope.statistics.tags import TAGGED, verdicts
from headscope.statistics.thresholds import floor_sensitivity


def tags(run: hs.Run, factor: float, *, sinks: bool) -> int:
    rules = {name: replace(rule, floor=rule.floor * factor) for name, rule in run.rules.items()}
    rows = run.evidence[(verdicts(run.evidence, rules) == TAGGED).to_numpy()]
    rows = rows[(rows["type"] == "sink") == sinks]
    return len(rows.drop_duplicates(["layer", "head", "type"]))


def test_the_sentence_counts_the_tags_of_higher_and_lower_floors():
    run = hs.load("atlas:mini")
    parts = []
    for noun, sinks in (("tags", False), ("tags of attention sinks", True)):
        more, now, fewer = (tags(run, factor, sinks=sinks) for factor in (0.9, 1.0, 1.1))
        parts.append(
            f"floors 10 % higher take {now - fewer} of {now} {noun} away, "
            f"floors 10 % lower add {more - now}"
        )
    assert floor_sensitivity(run.evidence, run.rules) == f"{'; '.join(parts).capitalize()}."
    assert floor_sensitivity(run.evidence.head(0), run.rules) == ""
