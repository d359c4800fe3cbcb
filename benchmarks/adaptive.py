"""What reading on changes: the tags at each look against those of the whole text.

    python benchmarks/adaptive.py MODEL[:CORPUS[,CORPUS]] …        # e.g. mini mini:controlled,gold

A run reads all of its text; at each look its sums are kept, and judged afterwards with the twin of
the whole. `expected` is what `headscope.statistics.early_stopping` said then, `changed` what came.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
from side_by_side import save

import headscope as hs
from headscope.measure.tally import Tally
from headscope.relations import relations_of
from headscope.statistics.early_stopping import (
    SHARES,
    ExpectedTagChanges,
    StoppingRule,
    expected_tag_changes,
)
from headscope.statistics.estimates import weigh
from headscope.statistics.tags import TAGGED, verdicts

CELL = ["layer", "head", "type", "relation"]


def main() -> None:
    rows: dict[str, Any] = {}
    for word in sys.argv[1:] or ["mini"]:
        model, _, corpora = word.partition(":")
        for look, found in _looks(model, [name for name in corpora.split(",") if name]).items():
            rows[f"{Path(model).stem}, {corpora or 'gum'}, {look:.0%} of the text"] = found
            print(word, look, found, flush=True)
    save("adaptive", rows)


def _looks(model: str, corpora: list[str]) -> dict[float, dict[str, Any]]:
    kept: list[tuple[float, Tally, ExpectedTagChanges]] = []
    relations = relations_of(["all"])

    def keep(self: StoppingRule, tally: Tally, look: int) -> dict[str, float]:
        if look >= len(self._shares):
            return {}
        share = self._shares[look]
        said = expected_tag_changes(tally, relations, share, self._facts)
        kept.append((share, deepcopy(tally), said))
        return {}

    with patch.object(StoppingRule, "should_stop", keep):
        run = hs.classify(model, corpora, examples=False)
    rules, facts = run.rules, run.info["simple_rules"]

    def tags(tally: Tally) -> set[tuple[Any, ...]]:
        table = weigh(tally, relations, seed=0, facts=facts, twin=run.twin)
        table["q_value"] *= len(SHARES) + 1
        tagged: pd.DataFrame = table[verdicts(table, rules) == TAGGED]
        return set(tagged[CELL].itertuples(index=False, name=None))

    assert run.tally is not None
    whole = tags(run.tally)
    found = {}
    for share, tally, said in kept:
        part = tags(tally)
        found[share] = {
            "tags": len(whole),
            "kept": len(part & whole),
            "new": len(part - whole),
            "Jaccard": round(len(part & whole) / max(1, len(part | whole)), 3),
            "expected": round(said.changes, 1),
            "changed": len(part ^ whole),
            "would end": said.should_stop,
        }
    return found


if __name__ == "__main__":
    main()
