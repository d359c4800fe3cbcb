"""A pruning as tables for the terminal, and a figure for papers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.studies.prune.pruning_orders import IMPORTANCE, RANDOM, SURVIVORS_PREFIX, TYPE
from headscope.views.summary import short_title
from headscope.views.tables import plain_table

if TYPE_CHECKING:
    from headscope.studies.prune.prune_result import Pruning
    from headscope.studies.prune.smaller import SmallerModel

_ORDERS = {IMPORTANCE: "#0072b2", RANDOM: "#8c8c8c", TYPE: "#d55e00"}
"""Colours that colour-blind readers tell apart too (Okabe and Ito 2008)."""
MOST_IMPORTANT = 5


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


def prune_figure(pruning: Pruning) -> Figure:
    """The loss by share of heads masked: a line per order, random ones as mean and range."""
    figure = Figure(figsize=(5.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for order, rows in pruning.curve.groupby("order", sort=False):
        by_share = rows.groupby("share")["loss"]
        share, color = list(by_share.groups), _ORDERS[str(order)]
        label = f"{order}, {rows['draw'].nunique()} draws" if order == RANDOM else str(order)
        axes.plot(share, by_share.mean(), marker="o", ms=3, lw=1.2, color=color, label=label)
        axes.fill_between(share, by_share.min(), by_share.max(), color=color, alpha=0.2, lw=0)
    axes.set_xlabel("share of heads masked")
    axes.set_ylabel("loss (nats per token)")
    axes.legend(fontsize=7, title="masked first by", title_fontsize=7)
    axes.set_title(short_title(pruning.model.name), fontsize=9)
    return figure


def smaller_lines(smaller: SmallerModel) -> RenderableType:
    """Line with the number of heads kept, how much smaller the model is, and its loss."""
    layers, heads = smaller.kept.shape
    kept_heads = int(smaller.kept[0].sum())
    return Text(
        f"\n{kept_heads} of {heads} heads kept in each of {layers} layers; "
        f"{smaller.parameters:,} of {smaller.parameters_before:,} parameters; "
        f"loss {smaller.loss:.4f}, was {smaller.before:.4f}"
    )


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
