"""Key/value heads that may stream, the losses as more and more of them do, and the share of the
key/value cache of one text that they save.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int
from matplotlib.figure import Figure
from numpy import ndarray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.models.layout.dimensions import bytes_per_key
from headscope.models.load import Model
from headscope.studies.streaming.foreign import YES
from headscope.studies.streaming.streaming_heads import SinkWindow
from headscope.views.study import Study
from headscope.views.summary import short_title
from headscope.views.tables import interval_text, number_text, plain_table

DTYPE = "float16"
"""In which caches are reckoned, as `anatomy` does."""


@dataclass(frozen=True)
class Cache:
    """Cache of one text of `length` tokens; key/value heads are numbered through all layers."""

    length: int
    per_key: int
    """Bytes of one token in one key/value head: a key and a value, in half precision."""
    full_keys: Int[ndarray, " key_value"]
    """Keys that each head keeps now: all of them, or as many as its layer's own window has."""
    streaming_keys: Int[ndarray, " key_value"]
    """Keys that it keeps when it streams."""

    @property
    def bytes(self) -> int:
        """Bytes of the whole cache, with no head streaming."""
        return int(self.full_keys.sum()) * self.per_key

    def saved_bytes(self, heads: Int[ndarray, " streaming"]) -> int:
        """Bytes that are not needed when these heads stream."""
        return int((self.full_keys - self.streaming_keys)[heads].sum()) * self.per_key

    def saved(self, heads: Int[ndarray, " streaming"]) -> float:
        """The same as a share of the cache, in [0, 1)."""
        return self.saved_bytes(heads) / self.bytes


def cache_of(
    model: Model, window: SinkWindow, visible_keys: Int[ndarray, " layer"], *, length: int
) -> Cache:
    """The cache of a text of so many tokens.

    Args:
        model: of the fused engine, whose layers and heads they are.
        window: the keys that a streaming head keeps.
        visible_keys: keys that a query of each layer sees at most.
        length: in tokens.
    """
    engine: Any = model.engine
    per_key = bytes_per_key(engine.dimensions.d_head, DTYPE)
    full_keys = np.minimum(visible_keys, length).repeat(model.key_value_heads)
    return Cache(length, per_key, full_keys, np.minimum(full_keys, window.reach))


CHANGE, MASS, RANDOM, GATE = "change", "mass", "random", "gate"
"""By how much their output would change, by the mass beyond what they keep, at random, and by gates
that were published."""
_ORDERS = {CHANGE: "#0072b2", MASS: "#d55e00", GATE: "#009e73", RANDOM: "#8c8c8c"}
"""Colours that colour-blind readers tell apart too (Okabe and Ito 2008)."""
LISTED = 8


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
        """The rise of the loss by the share of the cache that is saved, a line per order."""
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for order, rows in self.curve.groupby("order", sort=False):
            by_heads = rows.groupby("heads")
            saved, rises, color = by_heads["saved"].mean(), by_heads["rise"], _ORDERS[str(order)]
            draws = rows["draw"].nunique()
            label = f"{order}, {draws} draws" if order == RANDOM else str(order)
            axes.plot(saved, rises.mean(), marker="o", ms=3, lw=1.2, color=color, label=label)
            low, high = (rises.min(), rises.max())
            if order != RANDOM:
                low, high = by_heads["ci_low"].mean(), by_heads["ci_high"].mean()
            axes.fill_between(saved, low, high, color=color, alpha=0.2, lw=0)
        best = self.best
        axes.plot([best["saved"]], [best["rise"]], "o", ms=8, mfc="none", color=_ORDERS[CHANGE])
        axes.axhline(self.tolerance, color="#8c8c8c", lw=0.8, ls=":")
        axes.set_xlabel(f"share of the key/value cache saved at {self.cache.length:,} tokens")
        axes.set_ylabel("rise of the loss (nats per token)")
        axes.legend(fontsize=7, title="streaming first by", title_fontsize=7)
        keys = f"{self.window.sinks} sinks, last {self.window.recent}"
        axes.set_title(f"{short_title(self.model)}: {keys}", fontsize=9)
        return figure

    def __repr__(self) -> str:
        return (
            f"<headscope streaming of {self.model}: {self.best['heads']} of {len(self.heads)} "
            f"key/value heads, {self.best['saved']:.0%} of the cache>"
        )


def streaming_lines(streaming: Streaming) -> RenderableType:
    """Heads that may stream, the memory that saves, the loss at each step, and who reads far."""
    best, cache, count = streaming.best, streaming.cache, len(streaming.heads)
    interval = interval_text(best["ci_low"], best["ci_high"], "+.3f")
    bounds = f" [{interval}]" if interval else ""
    parts: list[RenderableType] = [
        Text(
            f"{streaming.model}: {best['heads']} of {count} key/value heads may keep "
            f"{streaming.window.sinks} sinks and the last {streaming.window.recent} keys",
            style="bold",
        ),
        Text(
            f"at {cache.length:,} tokens that saves {best['saved']:.0%} of the key/value cache "
            f"({_size(streaming.saved_bytes)} of {_size(cache.bytes)} in half precision)"
        ),
        Text(
            f"loss {best['loss'] - best['rise']:.4f} nats per token; with them streaming "
            f"{best['rise']:+.4f}{bounds} (tolerance {streaming.tolerance:g})"
        ),
        *(Text(note, style="dim") for note in streaming.notes),
        Text("\nrise of the loss, by the order in which heads begin to stream:"),
        _rises(streaming.curve),
        Text("\nthe heads that stream last, whose outputs would change most:"),
        _last(streaming.table),
        Text(_needing(streaming.table), style="dim"),
    ]
    if "gate" in streaming.heads:
        parts.append(Text(_gate_correlation(streaming.heads), style="dim"))
    return Group(*parts)


def _rises(curve: pd.DataFrame) -> Table:
    """A row per number of heads: the orders that were measured, then the random ones."""
    gates = [GATE] if (curve["order"] == GATE).any() else []
    titles = ("heads", "saved", CHANGE, "95 %", MASS, *gates, RANDOM, "range")
    rendered = plain_table(*titles, right=titles)
    for heads, rows in curve.groupby("heads"):
        change, *others = (rows[rows["order"] == order].iloc[0] for order in (CHANGE, MASS, *gates))
        random_rises = rows.loc[rows["order"] == RANDOM, "rise"]
        rendered.add_row(
            str(heads),
            f"{change['saved']:.0%}",
            f"{change['rise']:+.4f}",
            interval_text(change["ci_low"], change["ci_high"], "+.3f"),
            *(f"{other['rise']:+.4f}" for other in others),
            f"{random_rises.mean():+.4f}",
            f"{random_rises.min():+.3f} … {random_rises.max():+.3f}",
        )
    return rendered


def _last(heads: pd.DataFrame) -> Table:
    """The heads whose output would change most."""
    numbers = ("change", "far mass", "of own text", "of another's")
    rendered = plain_table("layer", "key/value head", *numbers, "needs it", right=numbers)
    for row in heads.sort_values("place", ascending=False).head(LISTED).itertuples():
        masses = [number_text(row.own_far, ".3f", "–"), number_text(row.foreign_far, ".3f", "–")]
        cells = (f"{row.change:.3f}", f"{row.far_mass:.3f}", *masses)
        rendered.add_row(str(row.layer), str(row.head), *cells, row.needs_far or "–")
    return rendered


def _needing(heads: pd.DataFrame) -> str:
    measured = int((heads["needs_far"] != "").sum())
    if not measured:
        return ""
    needing = int((heads["needs_far"] == YES).sum())
    return (
        f"{needing} of {measured} key/value heads need the far text: its share of their "
        "attention is surely larger than with another document's text in its place"
    )


def _gate_correlation(heads: pd.DataFrame) -> str:
    """The rank correlation of the order with that of the published gates."""
    correlation = heads["place"].corr(heads["gate"], method="spearman")
    return f"rank correlation of change with the published gates: {correlation:.2f}"


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
