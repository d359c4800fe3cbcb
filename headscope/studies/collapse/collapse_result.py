"""The cost of one pattern for all heads of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from headscope.studies.collapse.loss_rows import UNTOUCHED
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Collapse(Study):
    """The loss when the heads of a layer share one pattern; `table` is `losses`."""

    model: str
    losses: pd.DataFrame
    """See `headscope.studies.collapse.shared_pattern.layer_losses`."""

    @property
    def table(self) -> pd.DataFrame:
        """First the untouched model, then a row per layer × way: `loss`, `rise`, its interval."""
        return self.losses

    @property
    def rises(self) -> pd.DataFrame:
        """The rise of the loss in nats per token: a row per layer, a column per way."""
        changed = self.losses[self.losses["how"] != UNTOUCHED]
        order = {"index": changed["layer"].unique(), "columns": changed["how"].unique()}
        return changed.pivot(index="layer", columns="how", values="rise").reindex(**order)

    def figure(self) -> Figure:
        """The rise of the loss by layer, a line per way; see `view.collapse_figure`."""
        from headscope.studies.collapse.collapse_view import collapse_figure

        return collapse_figure(self)

    def __repr__(self) -> str:
        worst = self.losses["rise"].max()
        return f"<headscope collapse of {self.model}: rises of up to {worst:+.3f} nats per token>"
