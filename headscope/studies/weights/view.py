"""How the weights are shown: tables for the terminal, a figure for papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.studies.weights.related import HOLDS
from headscope.views.summary import short_title
from headscope.views.tables import plain_table

if TYPE_CHECKING:
    from headscope.studies.weights.result import WeightEvidence

MOST = 20
"""Pairs that are printed; the files have all of them."""
SAID = 3
"""Rows whose words are shown too."""


def weight_lines(found: WeightEvidence, table: str) -> RenderableType:
    """One of the tables `heads`, `composition`, `writes` and `related`, with the notes below it."""
    rows = getattr(found, table)
    parts: list[RenderableType] = [
        Text(f"{found.model}: {_TITLES[table]}", style="bold"),
        _LINES[table](rows),
    ]
    if table != "heads" and len(rows) > MOST:
        parts.append(Text(f"… {len(rows) - MOST} more; --format csv prints all", style="dim"))
    parts += [Text(f"note: {note}", style="yellow") for note in found.notes]
    return Group(*parts)


def _heads(rows: pd.DataFrame) -> Table:
    with_run = "primary" in rows
    table = plain_table(*_OF_WEIGHTS, *(_OF_A_RUN if with_run else ()))
    for row in rows.itertuples():
        beside = (row.k_from_relation, row.primary, row.relation) if with_run else ()
        table.add_row(
            head_name(row.layer, row.head),
            _signed(row.ov_copying),
            _signed(row.ov_copying_mlp0),
            f"{row.ov_norm:.3g}",
            f"{row.write_norm:.3g}",
            f"{row.write_dim:.1f}",
            row.write_alike,
            _number(row.write_cosine, 2),
            row.k_from,
            _number(row.k_composition, 3),
            _number(row.k_random_p999, 3),
            *beside,
            *([_number(row.mass, 2)] if with_run else []),
        )
    return table


_OF_HEADS = ("head", "copying", "after MLP 0", "|OV|", "|O|", "dims", "writes like", "cosine")
_OF_WEIGHTS = (*_OF_HEADS, "keys from", "K-comp.", "random 99.9 %")
_OF_A_RUN = ("which is", "primary", "relation", "mass")


def _composition(rows: pd.DataFrame) -> Table:
    table = plain_table("earlier", "head", "K-composition", "random mean", "random 99.9 %")
    for row in rows.head(MOST).itertuples():
        table.add_row(
            head_name(row.earlier_layer, row.earlier_head),
            head_name(row.layer, row.head),
            *(_number(x, 3) for x in (row.k_composition, row.k_random_mean, row.k_random_p999)),
        )
    return table


def _writes(rows: pd.DataFrame) -> Table:
    table = plain_table("head", "other", "cosine of writes", "of unrelated heads, about")
    for row in rows.head(MOST).itertuples():
        table.add_row(
            head_name(row.layer, row.head),
            head_name(row.layer, row.other),
            _number(row.write_cosine, 3),
            _number(row.write_chance, 3),
        )
    return table


_OF_RELATED = (
    *("head", "relation", "score", "95 % of lift", "q", "rival"),
    *("but itself", "alike", "top 10", "verdict"),
)


def _related(rows: pd.DataFrame) -> Group:
    table = plain_table(*_OF_RELATED)
    for row in rows.head(MOST).itertuples():
        table.add_row(
            head_name(row.layer, row.head),
            f"{row.sign} {row.relation}",
            _number(row.score, 2),
            f"{row.ci_low:+.2f} {row.ci_high:+.2f}",
            f"{row.q_value:.1g}",
            f"{row.rival:.2f} {row.rival_is}",
            _number(row.but_itself, 2),
            _number(row.alike, 2),
            _number(row.top_10, 2),
            row.verdict,
        )
    held = sum(rows["verdict"] == HOLDS)
    says = [
        Text(f"{head_name(r.layer, r.head)} {r.says}", style="dim")
        for r in rows.head(SAID).itertuples()
        if r.says
    ]
    return Group(Text(f"{held} of {len(rows)} rows hold"), table, *says)


_LINES: dict[str, Callable[[pd.DataFrame], RenderableType]] = {
    "heads": _heads,
    "composition": _composition,
    "writes": _writes,
    "related": _related,
}
_TITLES = {
    "heads": "what each head's weights show",
    "composition": "K-composition of an earlier head with a later one",
    "writes": "heads of one layer that write alike",
    "related": "words that heads make of words",
}


def copying_figure(found: WeightEvidence) -> Figure:
    """Layers × heads twice: red where a head raises the tokens it attends to, blue where it lowers
    them.
    """
    layers, heads = (int(found.heads[axis].max()) + 1 for axis in ("layer", "head"))
    size = (2.4 + 0.6 * heads, 1.6 + 0.28 * layers)
    figure = Figure(figsize=size, layout="constrained")
    both = figure.subplots(1, 2, sharey=True)
    for axes, column, title in zip(both, _COPYING, _COPYING.values(), strict=True):
        values = found.heads.pivot(index="layer", columns="head", values=column).to_numpy(float)
        image = axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("head")
    both[0].set_ylabel("layer")
    figure.colorbar(image, ax=both, label="OV copying")
    figure.suptitle(short_title(found.model), fontsize=9)
    return figure


_COPYING = {"ov_copying": "by the embedding", "ov_copying_mlp0": "behind the first MLP"}


def _signed(value: float) -> str:
    return "" if pd.isna(value) else f"{value:+.2f}"


def _number(value: float, digits: int) -> str:
    return "" if pd.isna(value) else f"{value:.{digits}f}"
