"""Key/value heads that may stream, and the losses as more and more of them do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from headscope.studies.streaming.cache import Cache
from headscope.studies.streaming.cache_orders import CHANGE
from headscope.studies.streaming.streaming_heads import SinkWindow
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Streaming(Study):
    """Key/value heads that may stream; `table` is `heads`."""

    model: str
    heads: pd.DataFrame
    """A row per key/value head; docs/formats.md describes the columns."""
    curve: pd.DataFrame
    """A row per order × draw × number of heads that stream."""
    window: SinkWindow
    cache: Cache
    tolerance: float
    """The rise of the loss, in nats per token, up to which heads are said to stream."""
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """The heads, with a column `streams`: True where they may all stream at once."""
        return self.heads.assign(streams=self.heads["place"] <= self.best["heads"])

    @property
    def best(self) -> pd.Series:
        """The row of the curve with the most heads, in the order by change, within the tolerance.

        The upper end of the rise's interval counts, or the rise where there is none; fewer heads
        must not cost more either.
        """
        rows = self.curve[self.curve["order"] == CHANGE].sort_values("heads")
        worst = rows["ci_high"].fillna(rows["rise"]).where(rows["heads"] > 0, 0.0)
        return rows[worst.cummax() <= self.tolerance].iloc[-1]

    @property
    def saved_bytes(self) -> int:
        """Bytes of the cache of one text that are saved when the heads of `best` stream."""
        return round(float(self.best["saved"]) * self.cache.bytes)

    def figure(self) -> Figure:
        """The rise of the loss by the memory that is saved; see `view.streaming_figure`."""
        from headscope.studies.streaming.streaming_view import streaming_figure

        return streaming_figure(self)

    def __repr__(self) -> str:
        return (
            f"<headscope streaming of {self.model}: {self.best['heads']} of {len(self.heads)} "
            f"key/value heads, {self.best['saved']:.0%} of the cache>"
        )
