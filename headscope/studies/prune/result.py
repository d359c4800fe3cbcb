"""What taking heads away showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.measure.batches import Batch
from headscope.models.load import Model
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Pruning(Study):
    """What pruning showed; `table` is `curve`."""

    heads: pd.DataFrame
    """A row per head: `gradient` (nats per token), `importance` (ℓ2-normalised in its layer, 0 to
    1), and with a run its `type`."""
    curve: pd.DataFrame
    """A row per order × draw × share of heads masked; with a run, a column `kept_TYPE` each."""
    model: Model
    text: Sequence[Batch]
    """The windows that the losses were taken on."""

    @property
    def table(self) -> pd.DataFrame:
        """The curve: `loss` and its `rise` for each order and share of heads masked."""
        return self.curve

    @property
    def importance(self) -> Float[ndarray, "layer head"]:
        """The normalised importance as a matrix."""
        matrix: ndarray = self.heads.pivot(
            index="layer", columns="head", values="importance"
        ).to_numpy()
        return matrix

    @property
    def rises(self) -> pd.DataFrame:
        """The rise of the loss, the mean over draws: a row per share, a column per order."""
        return self.curve.pivot_table(index="share", columns="order", values="rise", sort=False)

    def figure(self) -> Figure:
        """The loss by share of heads masked, a line per order; see `view.prune_figure`."""
        from headscope.studies.prune.view import prune_figure

        return prune_figure(self)

    def __repr__(self) -> str:
        return (
            f"<headscope pruning of {self.model.name}: {len(self.heads)} heads, "
            f"{self.curve['order'].nunique()} orders>"
        )
