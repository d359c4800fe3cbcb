"""How the losses of changed models are shown: tables for the terminal, figures for papers."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.interventions.layer_losses import ALL, UNTOUCHED
from headscope.interventions.mixing import NO_MIXING
from headscope.interventions.prune import IMPORTANCE, KEPT, RANDOM, TYPE, Pruning
from headscope.interventions.smaller import Smaller

_LINES = {"mean": "#0072b2", "head 0": "#d55e00", "uniform": "#009e73", NO_MIXING: "#8c8c8c"}
_ORDERS = {IMPORTANCE: "#0072b2", RANDOM: "#8c8c8c", TYPE: "#d55e00"}
"""Colours that colour-blind readers tell apart too (Okabe and Ito 2008)."""
MOST_IMPORTANT = 5


def collapse_lines(table: pd.DataFrame, model: str) -> RenderableType:
    """The loss of the untouched model, then a row per layer and way."""
    base = table[table["how"] == UNTOUCHED].iloc[0]
    title = Text(f"{model}: {base['loss']:.4f} nats per token, untouched", style="bold")
    shown = _table("layer", "one pattern, or", right=("loss", "rise", "95 % interval"))
    for row in table[table["how"] != UNTOUCHED].itertuples():
        interval = _interval(row.ci_low, row.ci_high)
        shown.add_row(row.layer, row.how, f"{row.loss:.4f}", f"{row.rise:+.4f}", interval)
    return Group(title, Text(), shown)


def collapse_figure(table: pd.DataFrame, model: str) -> Figure:
    """The rise of the loss by layer, a line per way with its interval; `all` stands apart."""
    changed = table[table["how"] != UNTOUCHED]
    names = list(dict.fromkeys(changed["layer"]))
    figure = Figure(figsize=(2.6 + 0.3 * len(names), 3.4), layout="constrained")
    axes, apart = figure.subplots(1, 2, width_ratios=(max(2, len(names) - 1), 1))
    for i, how in enumerate(_LINES):
        if how not in set(changed["how"]):
            continue
        for panel, rows in (
            (axes, changed[(changed["how"] == how) & (changed["layer"] != ALL)]),
            (apart, changed[(changed["how"] == how) & (changed["layer"] == ALL)]),
        ):
            place = range(len(rows)) if panel is axes else [i]
            errors = [rows["rise"] - rows["ci_low"], rows["ci_high"] - rows["rise"]]
            panel.errorbar(
                place, rows["rise"], yerr=[each.clip(lower=0) for each in errors], marker="o",
                ms=3, lw=1.2, capsize=2, color=_LINES[how], label=how,
            )  # fmt: skip
    axes.set_xticks(range(len(names) - 1), names[:-1], fontsize=7)
    axes.set_xlabel("layer whose heads share one pattern")
    axes.set_ylabel("rise of the loss (nats per token)")
    for panel in (axes, apart):
        panel.axhline(0, color="grey", lw=0.6)
    axes.legend(fontsize=7)
    axes.set_title(_title(model), fontsize=9)
    apart.set_xticks([1], ["all layers"])
    apart.set_xlim(-0.5, changed["how"].nunique() - 0.5)
    return figure


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
    ]
    if any(column.startswith(KEPT) for column in curve):
        parts += [Text("\nheads left by type, the least important masked first:"), _left(curve)]
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
    axes.set_title(_title(pruning.model.name), fontsize=9)
    return figure


def smaller_lines(smaller: Smaller) -> RenderableType:
    """How many heads were kept, how much smaller the model is, and its loss."""
    layers, heads = smaller.kept.shape
    kept = int(smaller.kept[0].sum())
    return Text(
        f"\n{kept} of {heads} heads kept in each of {layers} layers; "
        f"{smaller.parameters:,} of {smaller.parameters_before:,} parameters; "
        f"loss {smaller.loss:.4f}, was {smaller.before:.4f}"
    )


def _rises(curve: pd.DataFrame) -> Table:
    """A row per share of heads masked, a column per order."""
    orders = list(dict.fromkeys(curve["order"]))
    shown = _table(right=("masked", "heads", *(_HEADERS.get(order, order) for order in orders)))
    for share, rows in curve.groupby("share"):
        cells = []
        for order in orders:
            rises = rows.loc[rows["order"] == order, "rise"]
            spread = f" [{rises.min():+.3f}, {rises.max():+.3f}]" if order == RANDOM else ""
            cells.append(f"{rises.mean():+.4f}{spread}")
        shown.add_row(f"{share:.0%}", str(rows["masked"].iloc[0]), *cells)
    return shown


_HEADERS = {RANDOM: "random, mean [range]"}


def _left(curve: pd.DataFrame) -> Table:
    columns = [column for column in curve if column.startswith(KEPT)]
    shown = _table(right=("masked", *(column.removeprefix(KEPT) for column in columns)))
    for _, row in curve[curve["order"] == IMPORTANCE].iterrows():
        shown.add_row(f"{row['share']:.0%}", *(str(row[column]) for column in columns))
    return shown


def _table(*left: str, right: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table


def _interval(low: float, high: float) -> str:
    return "–" if low != low else f"[{low:+.4f}, {high:+.4f}]"


def _title(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1].replace("$", r"\$")
