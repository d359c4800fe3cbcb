"""OV copying against the matrix that is published for GPT-2 small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from headscope.corpus.shipped import ALIASES, data_folder
from headscope.errors import ChoiceError, RunError
from headscope.heads import head_name

METRIC = "ov_copying_eig"


@dataclass(frozen=True)
class CopyingAgreement:
    """How a model's copying scores compare with the published ones."""

    model: str
    heads: pd.DataFrame
    """A row per head: `layer,head,ov_copying,published,difference`, the farthest apart first."""
    pearson: float
    largest_difference: float
    at: str
    """The head that lies farthest apart."""
    same_sign: float
    """Share of heads, in [0, 1], with the same sign."""


def compare_copying(heads: pd.DataFrame, model: str) -> CopyingAgreement:
    """Compare `ov_copying` with the published matrix, which has the same definition.

    The published one is of TransformerLens' Main_Demo: the same score of the same folded and
    centred matrices, so that GPT-2's own weights should give it up to rounding. No test here has
    those weights.

    Args:
        heads: the `heads` of `weights`: `layer`, `head` and `ov_copying`.
        model: the published name, or the hub's, such as `gpt2`.

    Raises:
        ChoiceError: no copying scores are published for this model.
        RunError: the table has other heads than the published model.
    """
    scores = pd.read_csv(data_folder() / "published_scores.csv")
    scores = scores[scores["metric"] == METRIC]
    name = ALIASES.get(model, model)
    if name not in set(scores["model"]):
        raise ChoiceError("model with published copying scores", model, sorted({*scores["model"]}))
    published = scores.loc[scores["model"] == name, ["layer", "head", "value"]]
    both = heads[["layer", "head", "ov_copying"]].merge(
        published.rename(columns={"value": "published"}), how="outer"
    )
    if len(both) != len(published) or both.isna().any(axis=None):
        last = head_name(int(published["layer"].max()), int(published["head"].max()))
        raise RunError(
            f"the table has not the heads of {name}, which go up to {last}: {len(heads)} rows came "
            f"for its {len(published)} heads"
        )
    both["difference"] = both["ov_copying"] - both["published"]
    both = both.sort_values("difference", key=np.abs, ascending=False, ignore_index=True)
    worst = both.iloc[0]
    return CopyingAgreement(
        model=name,
        heads=both,
        pearson=float(both["ov_copying"].corr(both["published"])),
        largest_difference=float(abs(worst["difference"])),
        at=head_name(int(worst["layer"]), int(worst["head"])),
        same_sign=float((both["ov_copying"] * both["published"] > 0).mean()),
    )
