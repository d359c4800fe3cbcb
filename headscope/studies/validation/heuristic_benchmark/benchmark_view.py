"""Views of the zoo: tables for the terminal, a figure for papers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.studies.validation.heuristic_benchmark.oracles import QUIET
from headscope.views.colours import colour
from headscope.views.tables import plain_table

if TYPE_CHECKING:
    from headscope.studies.validation.heuristic_benchmark.benchmark_result import Zoo


def zoo_lines(zoo: Zoo) -> RenderableType:
    """The two shares, then oracles by noise, relations, and the tags that are not true."""
    false, pairs = len(zoo.false_tags), int(zoo.judged["habits"].sum())
    lines = [
        f"{zoo.words:,} words, {len(zoo.habits)} habits, {zoo.oracles['name'].nunique()} oracles",
        f"tags that are not true of a habit: {false} of {pairs:,} habit × relation "
        f"({zoo.false_rate:.2%})",
        f"oracles found with noise up to {QUIET:g}, where the text can tell: {zoo.found_share:.1%}",
    ]
    missed = zoo.habits[zoo.habits["found"].eq(False)]
    if len(missed):
        lines.append(f"habits without their own tag: {', '.join(missed['name'])}")
    parts = [_noises(zoo), _types(zoo), _relations(zoo), _false(zoo)]
    return Group(Text("\n".join(lines), style="bold"), *(x for p in parts for x in (Text(), p)))


def _noises(zoo: Zoo) -> RenderableType:
    table = plain_table("noise", "oracles", "not identifiable", "found", "share", "false tags")
    for row in zoo.by_noise.itertuples():
        cells = (f"{row.noise:g}", str(row.oracles), str(row.untold), str(row.found))
        table.add_row(*cells, f"{row.share:.1%}", str(row.false_tags))
    return table


def _types(zoo: Zoo) -> RenderableType:
    table = plain_table("type", "habit × relation", "false tags", "rate")
    for row in zoo.by_type.itertuples():
        rate = f"{row.false_rate:.2%}" if row.pairs else "–"  # every habit may rest
        table.add_row(row.type, f"{row.pairs:,}", str(row.false_tags), rate)
    return table


def _relations(zoo: Zoo) -> RenderableType:
    """Relations with false tags, or with an oracle."""
    table = plain_table("relation", "n", "false tags", "rate", "oracle found up to noise")
    with_oracle = set(zoo.oracles["relation"])
    untold = set(zoo.oracles.loc[zoo.oracles["verdict"] != "", "relation"])
    rows = zoo.by_relation
    rows = rows[(rows["false_tags"] > 0) | rows["relation"].isin(with_oracle)]
    for row in rows.itertuples():
        reach = "never" if pd.isna(row.found_up_to) else f"{row.found_up_to:g}"
        reach = "" if row.relation not in with_oracle else reach
        if row.relation in untold and reach == "never":
            reach = "not identifiable"
        table.add_row(
            row.relation, f"{row.n:,}", str(row.false_tags), f"{row.false_rate:.1%}", reach
        )
    return table


def _false(zoo: Zoo) -> RenderableType:
    table = plain_table("tag that is not true", "of these habits")
    for relation, rows in zoo.false_tags.groupby("relation"):
        table.add_row(str(relation), "; ".join(rows["name"]))
    return table


def zoo_figure(zoo: Zoo) -> Figure:
    """False tags of habits by relation, and the share of oracles found by noise."""
    rows = zoo.by_relation
    rows = rows[rows["false_tags"] > 0].sort_values("false_tags")
    figure = Figure(figsize=(8.4, max(3.4, 1.2 + 0.2 * len(rows))), layout="constrained")
    habits_axes, oracles_axes = figure.subplots(1, 2)
    fill = [colour(str(name).split("/")[0]) for name in rows["relation"]]
    habits_axes.barh(rows["relation"], rows["false_tags"], color=fill)
    habits_axes.tick_params(axis="y", labelsize=7)
    habits_axes.set_xlabel(f"habits with a tag that is not true, of {len(zoo.habits)}")
    habits_axes.set_title(f"{len(zoo.false_tags)} in all: {zoo.false_rate:.2%}", fontsize=9)
    shares = zoo.by_noise
    oracles_axes.plot(shares["noise"], shares["share"], marker="o", ms=4)
    oracles_axes.set_ylim(-0.03, 1.03)
    oracles_axes.set_xlabel("noise, as a share of the attention")
    oracles_axes.set_ylabel("share of oracles found, where the text can tell")
    return figure
