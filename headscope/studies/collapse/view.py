"""How a collapse is shown: a table for the terminal, a figure for papers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.studies.collapse.layer_losses import ALL, UNTOUCHED
from headscope.studies.collapse.mixing import NO_MIXING
from headscope.views.summary import short_title
from headscope.views.tables import plain_table

if TYPE_CHECKING:
    from headscope.studies.collapse.result import Collapse

_LINES = {"mean": "#0072b2", "head 0": "#d55e00", "uniform": "#009e73", NO_MIXING: "#8c8c8c"}
"""Colours that colour-blind readers tell apart too (Okabe and Ito 2008)."""


def collapse_lines(found: Collapse) -> RenderableType:
    """The loss of the untouched model, then a row per layer and way."""
    table = found.losses
    base = table[table["how"] == UNTOUCHED].iloc[0]
    title = Text(f"{found.model}: {base['loss']:.4f} nats per token, untouched", style="bold")
    numbers = ("loss", "rise", "95 % interval")
    shown = plain_table("layer", "one pattern, or", *numbers, right=numbers)
    for row in table[table["how"] != UNTOUCHED].itertuples():
        interval = _interval(row.ci_low, row.ci_high)
        shown.add_row(row.layer, row.how, f"{row.loss:.4f}", f"{row.rise:+.4f}", interval)
    return Group(title, Text(), shown)


def collapse_figure(found: Collapse) -> Figure:
    """The rise of the loss by layer, a line per way with its interval; `all` stands apart."""
    changed = found.losses[found.losses["how"] != UNTOUCHED]
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
            style = {"marker": "o", "ms": 3, "lw": 1.2, "capsize": 2, "color": _LINES[how]}
            spread = [each.clip(lower=0) for each in errors]
            panel.errorbar(place, rows["rise"], yerr=spread, label=how, **style)
    axes.set_xticks(range(len(names) - 1), names[:-1], fontsize=7)
    axes.set_xlabel("layer whose heads share one pattern")
    axes.set_ylabel("rise of the loss (nats per token)")
    for panel in (axes, apart):
        panel.axhline(0, color="grey", lw=0.6)
    axes.legend(fontsize=7)
    axes.set_title(short_title(found.model), fontsize=9)
    apart.set_xticks([1], ["all layers"])
    apart.set_xlim(-0.5, changed["how"].nunique() - 0.5)
    return figure


def _interval(low: float, high: float) -> str:
    return "–" if low != low else f"[{low:+.4f}, {high:+.4f}]"
