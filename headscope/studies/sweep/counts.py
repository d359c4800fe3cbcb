"""Counts of heads of each type at each revision of a model, e.g. along its training."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from headscope.errors import RunError
from headscope.studies.sweep.sweep_cells import COMPLETE, Cell, counted_types, measured_types

COLUMNS = ["model", "corpus", "revision", "step", "type", "heads", "primary", "all_heads"]
_NUMBER = re.compile(r"\d+")


def by_revision(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row per model, corpus, revision and type, the revisions in the order of their numbers.

    `heads` counts the heads that hold a tag of the type (a head may hold several, and one that
    only rests on the first token holds `delimiter`), `primary` those whose first type it is, and
    `all_heads` the model's. Both counts are missing where the type was not asked for, or the text
    had too few queries for it. `step` is the last number in the revision's name, such as 1000 for
    `step1000`; it is missing where there is none.

    Args:
        cells: those of a sweep; what is not complete is left out.

    Raises:
        RunError: no cell is complete.
    """
    rows = [
        {
            "model": cell.model,
            "corpus": ";".join(cell.corpus),
            "revision": cell.revision or "",
            "step": step_of(cell.revision),
            "type": name,
            "heads": cell.counts.get(name),
            "primary": cell.primary.get(name),
            "all_heads": cell.heads,
        }
        for cell in complete_cells(cells)
        for name in counted_types(measured_types(cells))
    ]
    table = pd.DataFrame(rows, columns=COLUMNS)
    return table.astype(dict.fromkeys(("step", "heads", "primary", "all_heads"), "Int64"))


def complete_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Complete cells by model and corpus as they come, then by the revision's number; none last.

    Raises:
        RunError: no cell is complete.
    """
    listed = [cell for cell in cells if cell.status == COMPLETE]
    if not listed:
        raise RunError(
            f"none of the {len(cells)} runs of this sweep is complete; "
            "run headscope sweep run again"
        )
    models = list(dict.fromkeys((cell.model, cell.corpus) for cell in listed))

    def position(cell: Cell) -> tuple[int, bool, int]:
        step = step_of(cell.revision)
        return models.index((cell.model, cell.corpus)), step is None, step or 0

    return sorted(listed, key=position)


def step_of(revision: str | None) -> int | None:
    """The last number in a revision's name; None where it has none, or is a commit.

    >>> step_of("step1000"), step_of("main")
    (1000, None)
    """
    numbers = _NUMBER.findall(Path(revision or "").name)
    commit = re.fullmatch(r"[0-9a-f]{40}", revision or "")
    # a step of more digits is no step, and would not fit into a column of numbers
    return int(numbers[-1]) if numbers and not commit and len(numbers[-1]) < 16 else None
