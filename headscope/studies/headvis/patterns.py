"""The second pass: the strongest cells of those patterns that were drawn."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.load import Model
from headscope.studies.headvis.cells import Cells, strongest_cells
from headscope.studies.headvis.chosen import Chosen, read_rows
from headscope.studies.headvis.scan import Advance


def read_patterns(
    model: Model,
    windows: Sequence[Window],
    chosen: Chosen,
    wanted: Sequence[Collection[int]],
    advance: Advance,
) -> list[dict[int, Cells]]:
    """Of each head the kept cells of each window that is wanted of it.

    Args:
        model: the model.
        windows: all that there are.
        chosen: the heads.
        wanted: of each head the numbers of windows.
        advance: told the tokens of each window when they are done.
    """
    found: list[dict[int, Cells]] = [{} for _ in chosen.heads]
    for number, window in enumerate(windows):
        heads = [head for head, own in enumerate(wanted) if number in own]
        if heads:
            for head, cells in _cells(model, window, chosen, heads).items():
                found[head][number] = cells
        advance(len(window))
    return found


def _cells(
    model: Model, window: Window, chosen: Chosen, heads: Collection[int]
) -> dict[int, Cells]:
    """Of some of the chosen heads, by their places, what is kept of their patterns."""
    parts: dict[int, list[Cells]] = {head: [] for head in heads}

    def take(layer: int, places: slice, rows: Tensor, first: int) -> None:
        for head, own in zip(range(places.start, places.stop), rows, strict=True):
            if head in parts:
                parts[head].append(strongest_cells(own.exp(), first, len(window)))

    read_rows(model, window, chosen, take)
    return {head: Cells.joined(own) for head, own in parts.items()}
