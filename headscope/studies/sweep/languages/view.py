"""How languages are shown: tables for the terminal, a figure for papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.views.summary import short_title
from headscope.views.tables import plain_table

if TYPE_CHECKING:
    from headscope.studies.sweep.languages.result import Languages

LISTED = 20
"""Relations, and heads, that the terminal lists."""
DRAWN = 40
"""Rows of the figure."""
BESIDE = 8
"""Languages that have a column each in the terminal."""
NOT_DECIDED = "–"


def languages_lines(found: Languages) -> RenderableType:
    """The languages, the heads of each relation in each of them, and the most widely held."""
    held = found.heads[found.heads["tagged"] > 0]
    title = f"{found.model} in {len(found.languages)} languages: {', '.join(found.languages)}"
    parts: list[RenderableType] = [Text(title, style="bold"), Text(_texts(found), style="dim")]
    if held.empty:
        parts.append(Text("\nno head holds a relation in any of them"))
    else:
        parts += [
            Text(f"\nheads that hold a relation, by language ({NOT_DECIDED}: text cannot decide):"),
            _relations(found.relations, found.languages),
            Text("\nheads that hold one in the most languages:"),
            _heads(held),
        ]
    if found.failed:
        parts.append(Text(f"\n{len(found.failed)} languages could not be read:", style="yellow"))
        parts += [Text(f"  {language}: {error}") for language, error in found.failed.items()]
    return Group(*parts)


def languages_figure(found: Languages) -> Figure:
    """A row per head and relation, a column per language: the lift, and a dot where it is tagged.

    Grey is where the text could not decide. Where no head holds a relation in any language, those
    with the largest lift are drawn.
    """
    held = found.heads[found.heads["tagged"] > 0]
    rows = (held if len(held) else found.heads).head(DRAWN)
    keys = list(zip(rows["layer"], rows["head"], rows["type"], rows["relation"], strict=True))
    own = found.evidence.set_index(["layer", "head", "type", "relation", "language"]).sort_index()
    shape = (len(keys), len(found.languages))
    lift, tagged = np.full(shape, np.nan), np.zeros(shape, bool)
    for place, column in np.ndindex(*shape):
        cell = (*keys[place], found.languages[column])
        if cell in own.index and bool(own.at[cell, "decidable"]):
            lift[place, column] = own.at[cell, "lift"]
            tagged[place, column] = bool(own.at[cell, "tagged"])
    size = (2.6 + 0.36 * shape[1], 1.0 + 0.2 * shape[0])
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    most = max(0.1, float(np.nanmax(np.abs(lift))))
    colours = colormaps["RdBu_r"].with_extremes(bad="#d9d9d9")
    drawn = axes.imshow(lift, cmap=colours, vmin=-most, vmax=most, aspect="auto")
    up, across = np.nonzero(tagged)
    axes.plot(across, up, "o", ms=3, color="black", lw=0)
    axes.set_xticks(range(shape[1]), found.languages, fontsize=7)
    names = [f"{head_name(layer, head)} {relation}" for layer, head, _, relation in keys]
    axes.set_yticks(range(shape[0]), names, fontsize=6)
    axes.tick_params(length=0)
    axes.set_title(
        f"{short_title(found.model)}: lift (dot: holds it, grey: no telling)", fontsize=8
    )
    figure.colorbar(drawn, ax=axes, shrink=0.6).ax.tick_params(labelsize=6)
    return figure


def _texts(found: Languages) -> str:
    if found.parallel is None:
        return "texts differ from language to language: so may what they can decide"
    documents = "document" if found.parallel == 1 else f"{found.parallel} documents"
    return f"parallel texts: the same {documents} in every language"


def _relations(relations: pd.DataFrame, languages: tuple[str, ...]) -> Table:
    """Heads of each relation in each language; those held in the most languages first."""
    shown = languages[:BESIDE]
    more = [f"+{len(languages) - BESIDE}"] if len(languages) > BESIDE else []
    table = plain_table("relation", "languages", *shown, *more, right=("languages", *shown))
    wide = relations.set_index(["type", "relation", "language"])
    rows = []
    for (kind, relation), own in relations.groupby(["type", "relation"], sort=False):
        held, able = int((own["tagged"] > 0).sum()), int(own["decidable"].sum())
        if held:
            cells = [_count(wide, (kind, relation, language)) for language in shown]
            rows.append((held, able, f"{relation}", cells))
    rows.sort(key=lambda row: (-row[0], -row[1]))
    for held, able, name, cells in rows[:LISTED]:
        table.add_row(name, f"{held} of {able}", *cells, *[""] * len(more))
    if len(rows) > LISTED:
        table.add_row(f"and {len(rows) - LISTED} more")
    return table


def _count(wide: pd.DataFrame, key: tuple[Any, ...]) -> str:
    if key not in wide.index or not bool(wide.at[key, "decidable"]):
        return NOT_DECIDED
    return str(int(wide.at[key, "tagged"]))


def _heads(held: pd.DataFrame) -> Table:
    titles = ("languages", "mean lift", "95 %", "lowest")
    table = plain_table("head", "relation", *titles, "not in", right=titles)
    for row in held.head(LISTED).itertuples():
        table.add_row(
            head_name(row.layer, row.head),
            row.relation,
            f"{row.tagged} of {row.decidable}",
            f"{row.lift:.2f}",
            f"{row.ci_low:.2f} … {row.ci_high:.2f}",
            f"{row.lowest_lift:.2f}",
            str(row.not_in).replace(";", " "),
        )
    if len(held) > LISTED:
        table.add_row(f"and {len(held) - LISTED} more")
    return table
