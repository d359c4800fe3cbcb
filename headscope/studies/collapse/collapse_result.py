"""The cost of one pattern for all heads of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.views.study import Study
from headscope.views.summary import short_title
from headscope.views.tables import plain_table

ALL, UNTOUCHED, NO_MIXING = "all", "untouched", "no W_O"
COLUMNS = ["layer", "how", "loss", "rise", "ci_low", "ci_high"]
_LINES = {"mean": "#0072b2", "head 0": "#d55e00", "uniform": "#009e73", NO_MIXING: "#8c8c8c"}
"""Colours that colour-blind readers tell apart too (Okabe and Ito 2008)."""


@dataclass(frozen=True, eq=False)
class Collapse(Study):
    """The loss when the heads of a layer share one pattern; `table` is `losses`."""

    main_table: ClassVar[str] = "losses"

    model: str
    losses: pd.DataFrame
    """First the untouched model, then a row per layer × way: `loss`, `rise`, its interval; see
    `headscope.studies.collapse.shared_pattern.layer_losses`."""

    @property
    def rises(self) -> pd.DataFrame:
        """The rise of the loss in nats per token: a row per layer, a column per way."""
        changed = self.losses[self.losses["how"] != UNTOUCHED]
        order = {"index": changed["layer"].unique(), "columns": changed["how"].unique()}
        return changed.pivot(index="layer", columns="how", values="rise").reindex(**order)

    def figure(self) -> Figure:
        """The rise of the loss by layer, a line per way with its interval; `all` stands apart."""
        changed = self.losses[self.losses["how"] != UNTOUCHED]
        names = list(dict.fromkeys(changed["layer"]))
        figure = Figure(figsize=(2.6 + 0.3 * len(names), 3.4), layout="constrained")
        axes, all_axes = figure.subplots(1, 2, width_ratios=(max(2, len(names) - 1), 1))
        for i, method in enumerate(_LINES):
            if method not in set(changed["how"]):
                continue
            for panel, rows in (
                (axes, changed[(changed["how"] == method) & (changed["layer"] != ALL)]),
                (all_axes, changed[(changed["how"] == method) & (changed["layer"] == ALL)]),
            ):
                places = range(len(rows)) if panel is axes else [i]
                errors = [rows["rise"] - rows["ci_low"], rows["ci_high"] - rows["rise"]]
                style = {"marker": "o", "ms": 3, "lw": 1.2, "capsize": 2, "color": _LINES[method]}
                spread = [error.clip(lower=0) for error in errors]
                panel.errorbar(places, rows["rise"], yerr=spread, label=method, **style)
        axes.set_xticks(range(len(names) - 1), names[:-1], fontsize=7)
        axes.set_xlabel("layer whose heads share one pattern")
        axes.set_ylabel("rise of the loss (nats per token)")
        for panel in (axes, all_axes):
            panel.axhline(0, color="grey", lw=0.6)
        axes.legend(fontsize=7)
        axes.set_title(short_title(self.model), fontsize=9)
        all_axes.set_xticks([1], ["all layers"])
        all_axes.set_xlim(-0.5, changed["how"].nunique() - 0.5)
        return figure

    def __repr__(self) -> str:
        worst = self.losses["rise"].max()
        return f"<headscope collapse of {self.model}: rises of up to {worst:+.3f} nats per token>"


def collapse_lines(collapse: Collapse) -> RenderableType:
    """The loss of the untouched model, then a row per layer and way."""
    table = collapse.losses
    base = table[table["how"] == UNTOUCHED].iloc[0]
    title = Text(f"{collapse.model}: {base['loss']:.4f} nats per token, untouched", style="bold")
    numbers = ("loss", "rise", "95 % interval")
    rendered = plain_table("layer", "one pattern, or", *numbers, right=numbers)
    for row in table[table["how"] != UNTOUCHED].itertuples():
        interval = _interval(row.ci_low, row.ci_high)
        rendered.add_row(row.layer, row.how, f"{row.loss:.4f}", f"{row.rise:+.4f}", interval)
    return Group(title, Text(), rendered, Text(f"\n{_conclusion(table)}", style="bold"))


def _conclusion(losses: pd.DataFrame) -> str:
    """Names the layer that pays the most for one pattern, and those that pay nothing to be seen."""
    rows = losses[(losses["how"] == "mean") & (losses["layer"] != ALL)]
    worst = rows.loc[rows["rise"].idxmax()]
    sentence = (
        f"layer {worst['layer']} needs different patterns the most: with the mean pattern in all "
        f"its heads the loss rises by {worst['rise']:.3f} nats per token"
    )
    free_layers = [str(row.layer) for row in rows.itertuples() if not row.ci_low > 0]
    if not free_layers:
        return f"{sentence}; it rises surely in every layer"
    return f"{sentence}; no rise is shown in {'layer' if len(free_layers) == 1 else 'layers'} " + (
        ", ".join(free_layers)
    )


def _interval(low: float, high: float) -> str:
    return "–" if low != low else f"[{low:+.4f}, {high:+.4f}]"
