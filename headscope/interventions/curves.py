"""How the losses of changed models are shown: tables for the terminal, figures for papers."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.interventions.collapse import ALL, UNTOUCHED, WAYS

_LINES = {"mean": "#0072b2", "head 0": "#d55e00", "uniform": "#009e73"}
"""Colours that colour-blind readers tell apart too (Okabe and Ito 2008)."""


def collapse_lines(table: pd.DataFrame, model: str) -> RenderableType:
    """The loss of the untouched model, then a row per layer and way."""
    base = table[table["how"] == UNTOUCHED].iloc[0]
    title = Text(f"{model}: {base['loss']:.4f} nats per token, untouched", style="bold")
    shown = _table("layer", "one pattern", right=("loss", "rise", "95 % interval"))
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
    for i, how in enumerate(WAYS):
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
    apart.set_xlim(-0.5, 2.5)
    return figure


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
