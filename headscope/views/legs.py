"""The three legs of the tags, as the terminal shows them."""

from __future__ import annotations

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.statistics.result import Result
from headscope.statistics.tag_support import disagreements, legs_counted
from headscope.views.tables import plain_table


def legs_lines(table: pd.DataFrame, run: Result) -> RenderableType:
    """Counts by type, then the heads that do one of the two that their type is about.

    Args:
        table: from `headscope.statistics.tag_support.legs`.
        run: whose heads they are.
    """
    counts = legs_counted(table)
    table_text = plain_table(*counts.columns, right=tuple(counts.columns[1:]))
    for row in counts.itertuples(index=False):
        table_text.add_row(*("" if pd.isna(cell) else str(cell) for cell in row))
    parts: list[RenderableType] = [table_text]
    for disagreement, heads in disagreements(table, run).items():
        if heads:
            parts.append(Text(f"{disagreement}: {', '.join(heads)}"))
    optional_tables = (
        (run.effects, "what heads write (classify --writes)"),
        (run.causes, "causes (ablate)"),
    )
    notes = [
        f"note: this run was not asked for {what}"
        for optional_table, what in optional_tables
        if optional_table is None
    ]
    parts += [Text(note, style="yellow") for note in notes]
    return Group(*parts)
