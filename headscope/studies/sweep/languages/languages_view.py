"""Views of languages: tables for the terminal, a figure for papers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.studies.sweep.languages.across import held_labels, label_counts
from headscope.views.figures import short_title
from headscope.views.tables import plain_table

if TYPE_CHECKING:
    from headscope.studies.sweep.languages.languages_result import Languages

LISTED = 20
"""Relations, and heads, that the terminal lists."""
MAX_ROWS = 40
"""Rows of the figure."""
MAX_COLUMNS = 10
"""Languages that have a column each in the terminal."""
NOT_DECIDED = "–"
MARKS = {"holds_in": "●", "narrow_in": "○", "not_in": "×", "undecided_in": NOT_DECIDED}
"""Marks of a head in a language by the column that lists it."""
MARKS_MEAN = f"● holds it, ○ refused narrowly, × refused, {NOT_DECIDED} its text cannot tell"
CHANCE_MEANS = "by chance: in how many with heads shuffled within layers"
SURE = 0.01
"""p value below which heads agree more than their layers explain."""


def languages_lines(comparison: Languages) -> RenderableType:
    """The languages, how far heads agree between them, and the heads that hold a relation."""
    held = held_labels(comparison.heads)
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
            _relations(label_counts(comparison.evidence)),
            Text(f"\nheads that hold one in the most languages ({MARKS_MEAN}; {CHANCE_MEANS}):"),
            _heads(held, languages),
            Text(f"\n{_conclusion(held)}", style="bold"),
            Text(_verdicts(held)),
            *_shared(comparison.agreement),
        ]
    if comparison.failed:
        parts.append(
            Text(f"\n{len(comparison.failed)} languages could not be read:", style="yellow")
        )
        parts += [Text(f"  {language}: {error}") for language, error in comparison.failed.items()]
    return Group(*parts)


def languages_figure(comparison: Languages) -> Figure:
    """A row per head and label, a column per language: the lift, and a dot where it is tagged.

    The dot is hollow where it is refused narrowly. Grey is where the text could not decide. Where
    no head holds a relation in any language, those with the largest lift are drawn.
    """
    held = held_labels(comparison.heads)
    rows = held if len(held) else comparison.heads.assign(member=comparison.heads["relation"])
    rows = rows.head(MAX_ROWS)
    keys = list(zip(rows["layer"], rows["head"], rows["type"], rows["member"], strict=True))
    marks = [_marks(row) for row in rows.to_dict("records")]
    lifts = comparison.evidence.set_index(["layer", "head", "type", "relation", "language"])["lift"]
    shape = (len(keys), len(comparison.languages))
    lift, mark = np.full(shape, np.nan), np.full(shape, "", object)
    for row, column in np.ndindex(*shape):
        language = comparison.languages[column]
        mark[row, column] = marks[row].get(language, "")
        if mark[row, column] not in ("", NOT_DECIDED):
            lift[row, column] = lifts.get((*keys[row], language), np.nan)
    size = (2.6 + 0.36 * shape[1], 1.0 + 0.2 * shape[0])
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    limit = max(0.1, float(np.nanmax(np.abs(lift))))
    colours = colormaps["RdBu_r"].with_extremes(bad="#d9d9d9")
    image = axes.imshow(lift, cmap=colours, vmin=-limit, vmax=limit, aspect="auto")
    for name, fill in (("holds_in", "full"), ("narrow_in", "none")):
        up, across = np.nonzero(mark == MARKS[name])
        axes.plot(across, up, "o", ms=3, mew=0.5, color="black", lw=0, fillstyle=fill)
    axes.set_xticks(range(shape[1]), comparison.languages, fontsize=7)
    names = [f"{head_name(row.layer, row.head)} {row.relation}" for row in rows.itertuples()]
    axes.set_yticks(range(shape[0]), names, fontsize=6)
    axes.tick_params(length=0)
    axes.set_title(
        f"{short_title(comparison.model)}: lift (dot: holds it, hollow: nearly, grey: no telling)",
        fontsize=7,
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


def _shared(agreement: pd.DataFrame) -> list[RenderableType]:
    """Of each relation with tags the share that another language gives too, beside chance."""
    rows = agreement[agreement["shared"].notna()].sort_values(["tags", "shared"], ascending=False)
    if rows.empty:
        return []
    titles = ("tags", "shared", "95 %", "shuffled", "p")
    table = plain_table("relation", *titles, right=titles)
    for row in rows.head(LISTED).itertuples():
        ends = "" if np.isnan(row.shared_low) else f"{row.shared_low:.2f} … {row.shared_high:.2f}"
        table.add_row(
            row.relation,
            f"{row.tags:.0f}",
            f"{row.shared:.2f}",
            ends,
            f"{row.shared_shuffled:.2f}",
            f"{row.shared_p:.3f}",
        )
    if len(rows) > LISTED:
        table.add_row(f"and {len(rows) - LISTED} more")
    title = (
        "tags of one language that another gives too, of those whose text can decide (95 % over "
        "languages; with heads shuffled within layers):"
    )
    return [Text(f"\n{title}"), table]


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


def _relations(counts: pd.DataFrame) -> Table:
    """Heads of each label in each language; those held in the most languages first."""
    columns = [str(language) for language in counts.columns[:MAX_COLUMNS]]
    extra = len(counts.columns) - len(columns)
    overflow = [f"+{extra}"] if extra else []
    table = plain_table("relation", "languages", *columns, *overflow, right=("languages", *columns))
    held, able = (counts > 0).sum(axis=1), counts.notna().sum(axis=1)
    order = pd.DataFrame({"held": -held, "able": -able}).sort_values(
        ["held", "able"], kind="stable"
    )
    for label in order.index[:LISTED]:
        cells = [_count(value) for value in counts.loc[label, columns]]
        held_of_able = f"{held[label]} of {able[label]}"
        table.add_row(label[1], held_of_able, *cells, *[""] * len(overflow))
    if len(order) > LISTED:
        table.add_row(f"and {len(order) - LISTED} more")
    return table


def _count(heads: float) -> str:
    return NOT_DECIDED if np.isnan(heads) else f"{heads:.0f}"


def _heads(held: pd.DataFrame, languages: tuple[str, ...]) -> Table:
    """Each head's mean lift, the languages by chance, and a mark for each under its code."""
    columns = languages[:MAX_COLUMNS]
    unlisted = f" +{len(languages) - len(columns)}" if len(languages) > len(columns) else ""
    width = max(map(len, columns))
    codes = " ".join(code.ljust(width) for code in columns).rstrip() + unlisted
    numbers = ("mean lift", "95 %", "by chance")
    table = plain_table(
        "head", "relation", *numbers, codes, right=numbers, unwrapped=("head", codes)
    )
    for row in held.head(LISTED).to_dict("records"):
        marks = _marks(row)
        table.add_row(
            head_name(row["layer"], row["head"]),
            row["relation"],
            f"{row['lift']:.2f}",
            f"{row['ci_low']:.2f}…{row['ci_high']:.2f}",
            f"{row['by_chance']:.1f}",
            " ".join(marks.get(code, "").ljust(width) for code in columns).rstrip(),
        )
    if len(held) > LISTED:
        table.add_row("", f"and {len(held) - LISTED} more")
    return table


def _marks(row: dict[Hashable, Any]) -> dict[str, str]:
    """The mark of each language; of one whose text does not ask for the relation none."""
    return {
        code: mark for name, mark in MARKS.items() for code in str(row[name]).split(";") if code
    }


def _verdicts(held: pd.DataFrame) -> str:
    """How often the languages hold what one of them does, and the three ways of not holding it."""
    counts = {
        name: sum(len(str(codes).split(";")) for codes in held[name] if codes) for name in MARKS
    }
    return (
        f"of these in the languages that ask for them {counts['holds_in']} are held, "
        f"{counts['narrow_in']} refused narrowly, {counts['not_in']} refused and "
        f"{counts['undecided_in']} not decidable by the text"
    )
