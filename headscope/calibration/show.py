"""What `headscope calibrate` runs and prints."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.calibration.calibrate import Say, by_type, calibrate_planted, calibrate_random
from headscope.errors import HeadscopeError
from headscope.summary import plain_table


def run_calibration(
    model: str | None, *, seeds: int, out: Path | None, say: Say
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Calibrate on planted models, and on random weights of an architecture if one is named.

    Raises:
        HeadscopeError: the file cannot be written, or no seed is asked for.
    """
    if seeds < 1:
        raise HeadscopeError(f"--seeds {seeds}: at least 1 random initialisation is needed")
    if out is not None and not out.parent.is_dir():
        raise HeadscopeError(f"{out}: no such folder")
    # a model that cannot be loaded should say so before minutes of work
    drawn = calibrate_random(model, seeds=seeds, say=say) if model else None
    planted = calibrate_planted(say=say)
    if out is not None:
        try:
            planted.to_csv(out, index=False, lineterminator="\n")
        except OSError as error:
            raise HeadscopeError(f"{out} cannot be written: {error.strerror}") from error
    return planted, drawn


def planted_table(planted: pd.DataFrame) -> RenderableType:
    """A row per type, a column per level of noise: found of planted, and false tags."""
    counts = by_type(planted)
    noises = sorted(counts["noise"].unique())
    table = plain_table("type", *(f"noise {noise:g}" for noise in noises))
    for name, rows in counts.groupby("type"):
        cells = []
        for row in rows.sort_values("noise").itertuples():
            found = f"{row.found} of {row.planted}" if row.planted else "–"
            cells.append(f"{found}, {row.false_tags} false")
        table.add_row(str(name), *cells)
    title = Text("Planted heads found, and tags that are not true, by noise on every weight:")
    return Group(title, table)


def random_table(drawn: pd.DataFrame) -> Table:
    """A row per random initialisation: heads, how many got a tag, and which."""
    table = plain_table("seed", "heads", "tagged", "tags")
    for row in drawn.itertuples():
        table.add_row(str(row.seed), str(row.heads), str(row.tagged), row.tags.replace(";", ", "))
    share = drawn["tagged"].sum() / drawn["heads"].sum()
    table.add_row("all", str(drawn["heads"].sum()), str(drawn["tagged"].sum()), f"{share:.2%}")
    return table
