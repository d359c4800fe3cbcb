"""Views of an explanation: tables for the terminal, a coverage bar for papers."""

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
from headscope.studies.explain.patterns import LOSS
from headscope.views.tables import interval_text, number_text, plain_table, rows_table

if TYPE_CHECKING:
    from headscope.studies.explain.explain_result import Explanation

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
HEADS_MEAN = (
    "bits: KL divergence of the head's attention from uniform attention, per query; explained: the "
    "share of them that its rule explains on documents that it was not fitted on, position by "
    "position and the first token alone, content with the content of tokens added"
)
MOVED_MEANS = (
    "moved: the distance of an encoder's last states from those of the untouched model, in lengths "
    "of the latter, mean over tokens; an encoder predicts no next token"
)
MIN_CLUSTER, LISTED_HEADS = 2, 10
"""Heads of a cluster that is printed, at least; heads that are named, at most."""
_FURTHER_COLOUR = "#882255"


def explanation_lines(explanation: Explanation) -> RenderableType:
    """The account of all attention, the losses on rules, then a line per head."""
    mean = explanation.heads[["position", "explained", "with_content"]].mean()
    summary = f"{explanation.model}: rules explain {mean['explained']:.2f} of a head's bits"
    summary += f" (position and the first token alone {mean['position']:.2f}"
    if explanation.rank:
        summary += f", with content of rank {explanation.rank} {mean['with_content']:.2f}"
    parts: list[RenderableType] = [Text(summary + "), mean over heads", style="bold"), Text()]
    if explanation.twin is not None:
        parts.insert(1, Text(_control(explanation.twin)))
    parts += [_account(explanation), Text(), _curve(explanation), Text()]
    if explanation.losses is not None:
        parts += [_losses(explanation), Text()]
        if explanation.measure != LOSS:
            parts += [Text(MOVED_MEANS, style="dim"), Text()]
    parts += [_heads(explanation), Text(HEADS_MEAN, style="dim"), Text()]
    parts.append(_clusters(explanation.clusters))
    parts += _unclassified(explanation.unclassified)
    for row in explanation.at_odds.itertuples():
        summary = (
            f"{head_name(row.layer, row.head)}: its rule explains {row.explained:.2f} of its bits, "
        )
        summary += (
            f"and put in its place it recovers {row.recovered:.2f} of the {explanation.measure}"
        )
        parts.append(Text(f"finding: {summary}", style="yellow"))
    parts += [Text(f"note: {note}", style="yellow") for note in explanation.notes]
    return Group(*parts)


def _control(twin: pd.DataFrame) -> str:
    mean = twin[["bits", "position", "explained", "with_content"]].mean()
    summary = f"null model, attention weights shuffled: {mean['bits']:.2f} bits a query, explained "
    summary += f"{mean['explained']:.2f} (position and the first token alone {mean['position']:.2f}"
    content = "" if isnan(mean["with_content"]) else f", with content {mean['with_content']:.2f}"
    return f"{summary}{content}), mean over {len(twin)} heads"


def _curve(explanation: Explanation) -> Table:
    columns = {
        "features, at most": lambda row: str(row.features),
        "bits explained": lambda row: f"{row.explained:.3f}",
        f"{explanation.measure} recovered": lambda row: number_text(row.recovered, ".3f"),
    }
    return rows_table(explanation.curve, columns, right=tuple(columns)[1:])


def _clusters(clusters: pd.DataFrame) -> Table:
    numbers = ("heads", "bits", "explained")
    table = plain_table("heads alike by", *numbers, "which", right=numbers, unwrapped=numbers)
    for row in clusters[clusters["count"] >= MIN_CLUSTER].itertuples():
        members = row.heads.split(";")
        which = " ".join(members[:LISTED_HEADS]) + (" …" if len(members) > LISTED_HEADS else "")
        which += f" ({row.types})" if row.types else ""
        table.add_row(row.name, str(row.count), f"{row.bits:.2f}", f"{row.explained:.2f}", which)
    return table


def _unclassified(heads: pd.DataFrame) -> list[RenderableType]:
    if heads.empty:
        return []
    first = [head_name(row.layer, row.head) for row in heads.head(LISTED_HEADS).itertuples()]
    ending = " …" if len(heads) > LISTED_HEADS else ""
    line = f"heads without a tag, those with the most bits first: {' '.join(first)}{ending}"
    return [Text(), Text(line)]


def _account(explanation: Explanation) -> Table:
    table = plain_table("attention goes by", "share of bits", right=("share of bits",))
    overall = explanation.coverage[explanation.coverage["layer"] == "all"].iloc[0]
    for kind in explanation.coverage.columns[1:]:
        if abs(overall[kind]) >= 0.0005:
            table.add_row(kind, f"{overall[kind]:.3f}")
    return table


def _losses(explanation: Explanation) -> Table:
    loss = "loss" if explanation.measure == LOSS else "moved"
    numbers = (loss, "recovered", "95 %")
    table = plain_table("replaced", "by", *numbers, right=numbers)
    if explanation.losses is not None:
        for row in explanation.losses.itertuples():
            share = number_text(row.recovered, ".3f")
            interval = interval_text(row.ci_low, row.ci_high, ".2f") if share else ""
            table.add_row(row.replaced, row.how, f"{row.loss:.4f}", share, interval)
    return table


def _heads(explanation: Explanation) -> Table:
    numbers = ("bits", "position", "explained", "95 %", "content")
    columns = {
        "head": lambda row: head_name(row.layer, row.head),
        "bits": lambda row: f"{row.bits:.2f}",
        "position": lambda row: f"{row.position:.2f}",
        "explained": lambda row: f"{row.explained:.2f}",
        "95 %": lambda row: f"{row.ci_low:.2f} … {row.ci_high:.2f}",
        "content": lambda row: number_text(row.with_content, ".2f"),
        "rule": lambda row: row.rule,
    }
    return rows_table(explanation.heads, columns, right=numbers, unwrapped=("head", *numbers))


def coverage_figure(explanation: Explanation) -> Figure:
    """Bars of what attention goes by, and a curve of how far rules of fewer features go.

    Left a stacked bar of bits per layer, and one for all; right the curve of bits, and of the loss
    where smaller rules were run, against the number of features.
    """
    wide = 2.8 + 0.26 * len(explanation.coverage)
    figure = Figure(figsize=(wide + 3.4, 3.6), layout="constrained")
    bars_axes, curve_axes = figure.subplots(1, 2, width_ratios=[wide, 3.0])
    _draw_bars(explanation.coverage.reset_index(drop=True), bars_axes)
    _draw_curve(explanation, curve_axes)
    return figure


def _draw_bars(rows: pd.DataFrame, axes: Axes) -> None:
    position = [i + (name == "all") * 0.8 for i, name in enumerate(rows["layer"])]
    below = rows["sink"] * 0.0
    for kind in rows.columns[1:]:
        share = rows[kind].clip(lower=0)
        colour = COLOURS.get(kind, _FURTHER_COLOUR)
        axes.bar(position, share, bottom=below, color=colour, edgecolor="0.4", lw=0.3, label=kind)
        below = below + share
    axes.set_xticks(position, rows["layer"], fontsize=7)
    axes.set_xlabel("layer")
    axes.set_ylabel("share of the bits above uniform attention")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_curve(explanation: Explanation, axes: Axes) -> None:
    rows = explanation.curve
    position = range(len(rows))
    axes.plot(position, rows["explained"], "o-", color="#0072b2", label="bits explained", ms=4)
    label = f"{explanation.measure} recovered"
    if rows["recovered"].notna().sum() > 1:
        axes.plot(position, rows["recovered"], "s--", color="#d55e00", label=label, ms=4)
    alone = float(explanation.heads["position"].mean())
    axes.axhline(alone, color="0.5", lw=0.8, ls=":", label="bits by position and token 0")
    axes.set_xticks(position, [str(size) for size in rows["features"]], fontsize=7)
    axes.set_xlabel("features of a rule, at most")
    axes.set_ylabel("share")
    axes.set_ylim(top=1)
    axes.legend(fontsize=7)
