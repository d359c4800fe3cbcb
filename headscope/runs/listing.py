"""Choosing heads of a run, and writing them for other programs."""

from __future__ import annotations

import pandas as pd

from headscope.errors import ChoiceError
from headscope.evidence.ranking import strongest
from headscope.evidence.result import Result
from headscope.evidence.tags import UNCLASSIFIED, UNIDENTIFIABLE, reasons, with_rules
from headscope.evidence.undecided import undecided
from headscope.runs.tables import table_to_csv

_OF_THE_TYPE = (
    "relation",
    "score",
    "control",
    "lift",
    "ci_low",
    "ci_high",
    "q_value",
    "reason",
    "mass",
)


def list_heads(run: Result, tag: str | None = None) -> pd.DataFrame:
    """The heads with this tag, the strongest first; or all, or those without a tag, by their lift.

    Those are `unclassified`, and some of them `not identifiable`. The numbers of a tag are those of
    its own type, which need not be the head's primary one.

    Raises:
        ChoiceError: the run scored no such type.
    """
    heads = run.heads
    if tag == UNCLASSIFIED:
        heads = heads[heads["primary"] == UNCLASSIFIED]
    elif tag == UNIDENTIFIABLE:
        heads = heads.loc[undecided(heads, run.evidence).index]
    elif tag is not None:
        types = sorted(set(run.evidence["type"]))
        if tag not in types:
            raise ChoiceError("head type", tag, [*types, UNIDENTIFIABLE, UNCLASSIFIED])
        best = strongest(run.evidence)
        best = with_rules(best[best["type"] == tag], run.rules)
        best["reason"] = reasons(best, run.rules)
        own = best.assign(score=best["mass"])[["layer", "head", *_OF_THE_TYPE]]
        keep = [column for column in heads.columns if column not in _OF_THE_TYPE]
        return own.merge(heads[keep], on=["layer", "head"])[list(run.heads.columns)]
    return heads.sort_values("lift", ascending=False, kind="stable")


def write_heads(heads: pd.DataFrame, format: str) -> str:
    """The heads as `csv` or `json` (a list of objects)."""
    if format == "csv":
        return table_to_csv(heads)
    return str(heads.to_json(orient="records", indent=1, force_ascii=False)) + "\n"
