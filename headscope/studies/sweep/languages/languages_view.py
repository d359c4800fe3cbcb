"""Views of languages: tables for the terminal, a figure for papers."""

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
    from headscope.studies.sweep.languages.languages_result import Languages

LISTED = 20
"""Relations, and heads, that the terminal lists."""
MAX_ROWS = 40
"""Rows of the figure."""
MAX_COLUMNS = 8
"""Languages that have a column each in the terminal."""
NOT_DECIDED = "–"
SURE = 0.01
"""p value below which heads agree more than their layers explain."""


def languages_lines(comparison: Languages) -> RenderableType:
    """The languages, how far heads agree between them, and the heads that hold a relation."""
    held = comparison.heads[comparison.heads["tagged"] > 0]
    languages = comparison.languages
    title = f"{comparison.model} in {len(languages)} languages: {', '.join(languages)}"
    parts: list[RenderableType] = [Text(title, style="bold"), Text(_texts(comparison), style="dim")]
    if len(comparison.agreement):
        parts += [
            Text(f"\n{_agreement(comparison.agreement)}"),
            _correlations(comparison.agreement),
        ]
    if held.empty:
        parts.append(Text("\nno head holds a relation in any of them", style="bold"))
        parts += map(Text, _next_steps(comparison))
    else:
        parts += [
            Text(f"\nheads that hold a relation, by language ({NOT_DECIDED}: text cannot decide):"),
            _relations(comparison.relations, comparison.languages),
            Text("\nheads that hold one in the most languages:"),
            _heads(held),
            Text(f"\n{_conclusion(held)}", style="bold"),
        ]
    if comparison.failed:
        parts.append(
            Text(f"\n{len(comparison.failed)} languages could not be read:", style="yellow")
        )
        parts += [Text(f"  {language}: {error}") for language, error in comparison.failed.items()]
    return Group(*parts)


def languages_figure(comparison: Languages) -> Figure:
    """A row per head and relation, a column per language: the lift, and a dot where it is tagged.

    Grey is where the text could not decide. Where no head holds a relation in any language, those
    with the largest lift are drawn.
    """
    held = comparison.heads[comparison.heads["tagged"] > 0]
    rows = (held if len(held) else comparison.heads).head(MAX_ROWS)
    keys = list(zip(rows["layer"], rows["head"], rows["type"], rows["relation"], strict=True))
    evidence = comparison.evidence.set_index(
        ["layer", "head", "type", "relation", "language"]
    ).sort_index()
    shape = (len(keys), len(comparison.languages))
    lift, tagged = np.full(shape, np.nan), np.zeros(shape, bool)
    for row, column in np.ndindex(*shape):
        cell = (*keys[row], comparison.languages[column])
        if cell in evidence.index and bool(evidence.at[cell, "decidable"]):
            lift[row, column] = evidence.at[cell, "lift"]
            tagged[row, column] = bool(evidence.at[cell, "tagged"])
    size = (2.6 + 0.36 * shape[1], 1.0 + 0.2 * shape[0])
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    limit = max(0.1, float(np.nanmax(np.abs(lift))))
    colours = colormaps["RdBu_r"].with_extremes(bad="#d9d9d9")
    image = axes.imshow(lift, cmap=colours, vmin=-limit, vmax=limit, aspect="auto")
    up, across = np.nonzero(tagged)
    axes.plot(across, up, "o", ms=3, color="black", lw=0)
    axes.set_xticks(range(shape[1]), comparison.languages, fontsize=7)
    names = [f"{head_name(layer, head)} {relation}" for layer, head, _, relation in keys]
    axes.set_yticks(range(shape[0]), names, fontsize=6)
    axes.tick_params(length=0)
    axes.set_title(
        f"{short_title(comparison.model)}: lift (dot: holds it, grey: no telling)", fontsize=8
    )
    figure.colorbar(image, ax=axes, shrink=0.6).ax.tick_params(labelsize=6)
    return figure


def _agreement(agreement: pd.DataFrame) -> str:
    """How much the heads' lifts agree between languages, over all relations."""
    surely = int((agreement["p_value"] < SURE).sum())
    return (
        f"heads act alike in these languages: the rank correlation of their lifts is "
        f"{agreement['correlation'].median():.2f} (median of {len(agreement)} relations), "
        f"{agreement['shuffled'].median():.2f} with heads shuffled within layers; above that "
        f"(p < {SURE:g}) for {surely} of {len(agreement)}"
        if surely
        else f"of no relation do the heads' lifts agree more between languages than those of heads "
        f"shuffled within layers (p < {SURE:g})"
    )


def _correlations(agreement: pd.DataFrame) -> Table:
    titles = ("languages", "correlation", "95 %", "shuffled", "p")
    table = plain_table("relation", *titles, right=titles)
    for row in agreement.head(LISTED).itertuples():
        ends = "" if np.isnan(row.ci_low) else f"{row.ci_low:.2f} … {row.ci_high:.2f}"
        table.add_row(
            row.relation,
            str(row.languages),
            f"{row.correlation:.2f}",
            ends,
            f"{row.shuffled:.2f}",
            f"{row.p_value:.3f}",
        )
    if len(agreement) > LISTED:
        table.add_row(f"and {len(agreement) - LISTED} more")
    return table


def _conclusion(held: pd.DataFrame) -> str:
    """The heads that hold a relation wherever a text can tell, of those that several can tell."""
    several = held[held["decidable"] > 1]
    if several.empty:
        return "no relation that a head holds can be decided in more than one language"
    everywhere = int((several["tagged"] == several["decidable"]).sum())
    return (
        f"{everywhere} of {len(several)} head × relation that several languages can decide hold in "
        "all of them"
    )


def _next_steps(comparison: Languages) -> list[str]:
    """The nearest misses, or why there could be none, and what could be tried next."""
    if comparison.heads.empty:
        queries = int(comparison.relations["n"].max()) if len(comparison.relations) else 0
        return [
            f"no text could decide any relation: the most frequent has {queries} queries; read "
            "more text, by --max-tokens or longer treebanks"
        ]
    best = comparison.heads.loc[comparison.heads["highest_lift"].idxmax()]
    name = head_name(int(best["layer"]), int(best["head"]))
    evidence = comparison.evidence
    evidence = evidence[(evidence["layer"] == best["layer"]) & (evidence["head"] == best["head"])]
    row = evidence.loc[evidence[evidence["relation"] == best["relation"]]["lift"].idxmax()]
    return [
        f"closest: {name} {best['type']}/{best['relation']} in {row['language']}, lift "
        f"{row['lift']:.2f} (95 % {row['ci_low']:.2f} … {row['ci_high']:.2f}); headscope why of "
        f"that language's run and {name} says what it lacks",
        "next: --types positional,delimiter,induction shows whether the heads do anything on these "
        "texts; more text (--max-tokens) decides more relations; a model trained on these "
        "languages may hold them",
    ]


def _texts(comparison: Languages) -> str:
    if comparison.parallel is None:
        return "texts differ from language to language: so may what they can decide"
    documents = "document" if comparison.parallel == 1 else f"{comparison.parallel} documents"
    return f"parallel texts: the same {documents} in every language, read whole"


def _relations(relations: pd.DataFrame, languages: tuple[str, ...]) -> Table:
    """Heads of each relation in each language; those held in the most languages first."""
    columns = languages[:MAX_COLUMNS]
    overflow = [f"+{len(languages) - MAX_COLUMNS}"] if len(languages) > MAX_COLUMNS else []
    table = plain_table("relation", "languages", *columns, *overflow, right=("languages", *columns))
    wide = relations.set_index(["type", "relation", "language"])
    rows = []
    for (kind, relation), group in relations.groupby(["type", "relation"], sort=False):
        held, able = int((group["tagged"] > 0).sum()), int(group["decidable"].sum())
        if held:
            cells = [_count(wide, (kind, relation, language)) for language in columns]
            rows.append((held, able, f"{relation}", cells))
    rows.sort(key=lambda row: (-row[0], -row[1]))
    for held, able, name, cells in rows[:LISTED]:
        table.add_row(name, f"{held} of {able}", *cells, *[""] * len(overflow))
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
