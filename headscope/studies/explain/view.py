"""How an explanation is shown: tables for the terminal, a coverage bar for papers."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

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
_OWN = "#882255"


def explanation_lines(found: Explanation) -> RenderableType:
    """The account of all attention, the losses on rules, then a line per head."""
    mean = found.heads[["position", "explained", "with_content"]].mean()
    said = f"{found.model}: bits explained {mean['explained']:.2f}"
    said += f" (position and token 0 alone {mean['position']:.2f}"
    if found.rank:
        said += f", with content of rank {found.rank} {mean['with_content']:.2f}"
    parts: list[RenderableType] = [Text(said + "), mean over heads", style="bold"), Text()]
    parts += [_account(found), Text()]
    if found.losses is not None:
        parts += [_losses(found), Text()]
    parts.append(_heads(found))
    for row in found.at_odds.itertuples():
        said = (
            f"{head_name(row.layer, row.head)}: its rule explains {row.explained:.2f} of its bits, "
        )
        said += f"and in its place recovers {row.recovered:.2f} of its effect"
        parts.append(Text(f"finding: {said}", style="yellow"))
    parts += [Text(f"note: {note}", style="yellow") for note in found.notes]
    return Group(*parts)


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
    """What attention goes by: a stacked bar of bits per layer, and one for all."""
    rows = found.coverage.reset_index(drop=True)
    figure = Figure(figsize=(2.8 + 0.26 * len(rows), 3.6), layout="constrained")
    axes = figure.subplots()
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
    return figure
