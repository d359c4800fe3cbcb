"""Choosing heads of a run, and writing them for other programs."""

from __future__ import annotations

import pandas as pd

from headscope.errors import ChoiceError
from headscope.run import Run
from headscope.tables import table_to_csv
from headscope.tags import UNCLASSIFIED, reason, with_rules

_OF_THE_TYPE = (
    "relation", "score", "control", "lift", "ci_low", "ci_high", "q_value", "reason",
)  # fmt: skip


def list_heads(run: Run, tag: str | None = None) -> pd.DataFrame:
    """The heads with this tag (or `unclassified`, or all), the strongest lift first.

    Raises:
        ChoiceError: the run scored no such type.
    """
    heads = run.heads
    if tag == UNCLASSIFIED:
        heads = heads[heads["primary"] == UNCLASSIFIED]
    elif tag is not None:
        types = sorted(set(run.evidence["type"]))
        if tag not in types:
            raise ChoiceError("head type", tag, [*types, UNCLASSIFIED])
        best = run.evidence[run.evidence["tagged"] & (run.evidence["type"] == tag)]
        best = best.sort_values("lift", ascending=False).drop_duplicates(["layer", "head"])
        # the numbers and the reason of this type, which need not be the head's primary one
        best = with_rules(best, run.rules)
        best["reason"] = [reason(row, run.rules) for _, row in best.iterrows()]
        own = best.rename(columns={"mass": "score"})[["layer", "head", *_OF_THE_TYPE]]
        keep = [column for column in heads.columns if column not in _OF_THE_TYPE]
        heads = heads[keep].merge(own, on=["layer", "head"])[list(run.heads.columns)]
    return heads.sort_values("lift", ascending=False, kind="stable")


def write_heads(heads: pd.DataFrame, format: str) -> str:
    """The heads as `csv` or `json` (a list of objects)."""
    if format == "csv":
        return table_to_csv(heads)
    return str(heads.to_json(orient="records", indent=1, force_ascii=False)) + "\n"
