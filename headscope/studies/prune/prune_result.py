"""The losses of a model as heads are taken away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.models.load import Model
from headscope.studies.prune.against_random import conclusions
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Pruning(Study):
    """The losses of a model as heads are taken away; `table` is `curve`."""

    heads: pd.DataFrame
    """A row per head: `gradient` (nats per token), `importance` (ℓ2-normalised in its layer, 0 to
    1), and with a run its `type`."""
    curve: pd.DataFrame
    """A row per order × draw × share of heads masked; with a run, a column `kept_TYPE` each."""
    model: Model
    windows: Sequence[Window]
    """The text that the losses were taken on."""
    against_random: pd.DataFrame
    """A row per order; see `headscope.studies.prune.against_random.order_summary`."""

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

    @property
    def conclusion(self) -> str:
        """Says whether masking by importance, and by type, costs less than masking at random."""
        return "\n".join(conclusions(self.against_random, self.curve))

    def figure(self) -> Figure:
        """The loss by share of heads masked, a line per order; see `view.prune_figure`."""
        from headscope.studies.prune.prune_view import prune_figure

        return prune_figure(self)

    def __repr__(self) -> str:
        return (
            f"<headscope pruning of {self.model.name}: {len(self.heads)} heads, "
            f"{self.curve['order'].nunique()} orders>"
        )
