"""The losses of a model as heads are taken away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy import ndarray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.models.load import Model
from headscope.studies.prune.against_random import (
    IMPORTANCE,
    RANDOM,
    SURVIVORS_PREFIX,
    TYPE,
    conclusions,
)
from headscope.views.study import Study
from headscope.views.summary import short_title
from headscope.views.tables import plain_table

_ORDERS = {IMPORTANCE: "#0072b2", RANDOM: "#8c8c8c", TYPE: "#d55e00"}
"""Colours that colour-blind readers tell apart too (Okabe and Ito 2008)."""
MOST_IMPORTANT = 5


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
        """The loss by share of heads masked: a line per order, random ones as mean and range."""
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for order, rows in self.curve.groupby("order", sort=False):
            by_share = rows.groupby("share")["loss"]
            share, color = list(by_share.groups), _ORDERS[str(order)]
            label = f"{order}, {rows['draw'].nunique()} draws" if order == RANDOM else str(order)
            axes.plot(share, by_share.mean(), marker="o", ms=3, lw=1.2, color=color, label=label)
            axes.fill_between(share, by_share.min(), by_share.max(), color=color, alpha=0.2, lw=0)
        axes.set_xlabel("share of heads masked")
        axes.set_ylabel("loss (nats per token)")
        axes.legend(fontsize=7, title="masked first by", title_fontsize=7)
        axes.set_title(short_title(self.model.name), fontsize=9)
        return figure

    def __repr__(self) -> str:
        return (
            f"<headscope pruning of {self.model.name}: {len(self.heads)} heads, "
            f"{self.curve['order'].nunique()} orders>"
        )


def prune_lines(pruning: Pruning) -> RenderableType:
    """The most and least important heads, the loss at each step, and which types survive."""
    curve, heads = pruning.curve, pruning.heads.sort_values("importance", kind="stable")
    names = [head_name(row.layer, row.head) for row in heads.itertuples()]
    parts: list[RenderableType] = [
        Text(f"{pruning.model.name}: {curve['loss'].iloc[0]:.4f} nats per token", style="bold"),
        Text(f"most important heads:  {', '.join(names[::-1][:MOST_IMPORTANT])}"),
        Text(f"least important heads: {', '.join(names[:MOST_IMPORTANT])}"),
        Text("importance: mean |gradient| of the head's mask, by its layer's ℓ2 norm", style="dim"),
        Text("\nrise of the loss, by the order in which heads are masked:"),
        _rises(curve),
        Text(f"\n{pruning.conclusion}", style="bold"),
    ]
    if any(column.startswith(SURVIVORS_PREFIX) for column in curve):
        parts += [
            Text("\nheads left by type, the least important masked first:"),
            _survivors(curve),
        ]
    return Group(*parts)


def _rises(curve: pd.DataFrame) -> Table:
    """A row per share of heads masked, a column per order."""
    orders = list(dict.fromkeys(curve["order"]))
    titles = ("masked", "heads", *(_HEADERS.get(order, order) for order in orders))
    rendered = plain_table(*titles, right=titles)
    for share, rows in curve.groupby("share"):
        cells = []
        for order in orders:
            rises = rows.loc[rows["order"] == order, "rise"]
            spread = f" [{rises.min():+.3f}, {rises.max():+.3f}]" if order == RANDOM else ""
            cells.append(f"{rises.mean():+.4f}{spread}")
        rendered.add_row(f"{share:.0%}", str(rows["masked"].iloc[0]), *cells)
    return rendered


_HEADERS = {RANDOM: "random, mean [range]"}


def _survivors(curve: pd.DataFrame) -> Table:
    columns = [column for column in curve if column.startswith(SURVIVORS_PREFIX)]
    titles = ("masked", *(column.removeprefix(SURVIVORS_PREFIX) for column in columns))
    rendered = plain_table(*titles, right=titles)
    for _, row in curve[curve["order"] == IMPORTANCE].iterrows():
        rendered.add_row(f"{row['share']:.0%}", *(str(row[column]) for column in columns))
    return rendered
