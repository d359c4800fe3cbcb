"""How an explanation is shown: tables for the terminal, a coverage bar for papers."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.views.tables import plain_table

if TYPE_CHECKING:
    from headscope.studies.explain.result import Explanation

COLOURS = {
    "sink": "#b8b8b8",
    "position": "#0072b2",
    "delimiter": "#56b4e9",
    "lexical": "#999933",
    "induction": "#d55e00",
    "syntactic": "#009e73",
    "coreference": "#cc79a7",
    "semantic": "#e69f00",
    "content": "#332288",
    "unexplained": "#ffffff",
}
ALIKE, SHOWN = 2, 10
"""Heads of a cluster that is printed, at least; heads that are named, at most."""
_OWN = "#882255"


def explanation_lines(found: Explanation) -> RenderableType:
    """The account of all attention, the losses on rules, then a line per head."""
    mean = found.heads[["position", "explained", "with_content"]].mean()
    said = f"{found.model}: bits explained {mean['explained']:.2f}"
    said += f" (position and token 0 alone {mean['position']:.2f}"
    if found.rank:
        said += f", with content of rank {found.rank} {mean['with_content']:.2f}"
    parts: list[RenderableType] = [Text(said + "), mean over heads", style="bold"), Text()]
    if found.twin is not None:
        parts.insert(1, Text(_control(found.twin)))
    parts += [_account(found), Text(), _curve(found.curve), Text()]
    if found.losses is not None:
        parts += [_losses(found), Text()]
    parts += [_heads(found), Text(), _clusters(found.clusters)]
    parts += _unclassified(found.unclassified)
    for row in found.at_odds.itertuples():
        said = (
            f"{head_name(row.layer, row.head)}: its rule explains {row.explained:.2f} of its bits, "
        )
        said += f"and in its place recovers {row.recovered:.2f} of its effect"
        parts.append(Text(f"finding: {said}", style="yellow"))
    parts += [Text(f"note: {note}", style="yellow") for note in found.notes]
    return Group(*parts)


def _control(twin: pd.DataFrame) -> str:
    mean = twin[["bits", "position", "explained", "with_content"]].mean()
    said = f"its twin, attention weights shuffled: {mean['bits']:.2f} bits a query, explained "
    said += f"{mean['explained']:.2f} (position and token 0 alone {mean['position']:.2f}"
    content = "" if isnan(mean["with_content"]) else f", with content {mean['with_content']:.2f}"
    return f"{said}{content}), mean over {len(twin)} heads"


def _curve(curve: pd.DataFrame) -> Table:
    names = ("bits explained", "loss recovered")
    table = plain_table("features, at most", *names, right=names)
    for row in curve.itertuples():
        recovered = "" if isnan(row.recovered) else f"{row.recovered:.3f}"
        table.add_row(str(row.features), f"{row.explained:.3f}", recovered)
    return table


def _clusters(clusters: pd.DataFrame) -> Table:
    numbers = ("heads", "bits", "explained")
    table = plain_table("heads alike by", *numbers, "which", right=numbers, whole=numbers)
    for row in clusters[clusters["count"] >= ALIKE].itertuples():
        own = row.heads.split(";")
        which = " ".join(own[:SHOWN]) + (" …" if len(own) > SHOWN else "")
        which += f" ({row.types})" if row.types else ""
        table.add_row(row.name, str(row.count), f"{row.bits:.2f}", f"{row.explained:.2f}", which)
    return table


def _unclassified(heads: pd.DataFrame) -> list[RenderableType]:
    if heads.empty:
        return []
    first = [head_name(row.layer, row.head) for row in heads.head(SHOWN).itertuples()]
    said = f"no tag, the most bits first: {' '.join(first)}{' …' if len(heads) > SHOWN else ''}"
    return [Text(), Text(said)]


def _account(found: Explanation) -> Table:
    table = plain_table("attention goes by", "share of bits", right=("share of bits",))
    own = found.coverage[found.coverage["layer"] == "all"].iloc[0]
    for kind in found.coverage.columns[1:]:
        if abs(own[kind]) >= 0.0005:
            table.add_row(kind, f"{own[kind]:.3f}")
    return table


def _losses(found: Explanation) -> Table:
    numbers = ("loss", "recovered", "95 %")
    table = plain_table("replaced", "by", *numbers, right=numbers)
    if found.losses is not None:
        for row in found.losses.itertuples():
            known = not isnan(row.recovered)
            interval = f"{row.ci_low:.2f} … {row.ci_high:.2f}" if known else ""
            share = f"{row.recovered:.3f}" if known else ""
            table.add_row(row.replaced, row.how, f"{row.loss:.4f}", share, interval)
    return table


def _heads(found: Explanation) -> Table:
    numbers = ("bits", "position", "explained", "95 %", "content")
    table = plain_table("head", *numbers, "rule", right=numbers, whole=("head", *numbers))
    for row in found.heads.itertuples():
        content = "" if isnan(row.with_content) else f"{row.with_content:.2f}"
        table.add_row(
            head_name(row.layer, row.head),
            f"{row.bits:.2f}",
            f"{row.position:.2f}",
            f"{row.explained:.2f}",
            f"{row.ci_low:.2f} … {row.ci_high:.2f}",
            content,
            row.rule,
        )
    return table


def coverage_figure(found: Explanation) -> Figure:
    """What attention goes by, and how far rules of fewer features go.

    Left a stacked bar of bits per layer, and one for all; right the curve of bits, and of the loss
    where smaller rules were run, against the number of features.
    """
    wide = 2.8 + 0.26 * len(found.coverage)
    figure = Figure(figsize=(wide + 3.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[wide, 3.0])
    _draw_bars(found.coverage.reset_index(drop=True), left)
    _draw_curve(found, right)
    return figure


def _draw_bars(rows: pd.DataFrame, axes: Axes) -> None:
    place = [i + (name == "all") * 0.8 for i, name in enumerate(rows["layer"])]
    below = rows["sink"] * 0.0
    for kind in rows.columns[1:]:
        share = rows[kind].clip(lower=0)
        colour = COLOURS.get(kind, _OWN)
        axes.bar(place, share, bottom=below, color=colour, edgecolor="0.4", lw=0.3, label=kind)
        below = below + share
    axes.set_xticks(place, rows["layer"], fontsize=7)
    axes.set_xlabel("layer")
    axes.set_ylabel("share of the bits above uniform attention")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_curve(found: Explanation, axes: Axes) -> None:
    rows = found.curve
    place = range(len(rows))
    axes.plot(place, rows["explained"], "o-", color="#0072b2", label="bits explained", ms=4)
    if rows["recovered"].notna().sum() > 1:
        axes.plot(place, rows["recovered"], "s--", color="#d55e00", label="loss recovered", ms=4)
    alone = float(found.heads["position"].mean())
    axes.axhline(alone, color="0.5", lw=0.8, ls=":", label="bits by position and token 0")
    axes.set_xticks(place, [str(size) for size in rows["features"]], fontsize=7)
    axes.set_xlabel("features of a rule, at most")
    axes.set_ylabel("share")
    axes.set_ylim(top=1)
    axes.legend(fontsize=7)
