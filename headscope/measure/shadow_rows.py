"""Rows of attention that shadows are fitted on: read from a model, or cut out of given patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.contested_sampling import stretch
from headscope.measure.gather import Cells, read_cells
from headscope.measure.shadow import ReadRows, RowTokens
from headscope.models.load import Model
from headscope.stimuli.text import TEXT

Heads = Sequence[tuple[int, int]]
LONGEST = 1_024
"""Tokens of a window that are read again for shadows: cells of rows grow with their square."""


def beginning_of(window: Window) -> Window:
    """The window, or of a longer text its first `LONGEST` tokens, as a window of its own."""
    if len(window) <= LONGEST or window.stimulus != TEXT.name:
        return window
    return stretch(window, window.begins, LONGEST, 0)


def rows_of_model(model: Model, *, batch_tokens: int) -> ReadRows:
    """Reader of a loaded model's rows; the model runs to the last layer that is asked for."""

    def read(
        windows: Sequence[Window], tokens: RowTokens, heads: Heads
    ) -> Iterator[tuple[int, int, ndarray]]:
        def cells_of(members: Sequence[int], length: int) -> Iterator[Cells[tuple[int, int]]]:
            for row, number in enumerate(members):
                if number not in tokens:
                    continue
                query, key = row_cells(windows[number], tokens[number])
                flat = (row * model.heads * length + query) * length + key
                for slot, (layer, head) in enumerate(heads):
                    yield Cells(layer, head, flat, (number, slot))

        for (number, slot), values in read_cells(
            model, windows, cells_of, batch_tokens=batch_tokens
        ):
            yield number, slot, values

    return read


def rows_of_patterns(
    patterns: Callable[
        [Sequence[Window]], Iterable[tuple[Float[Tensor, "layer head query key"], Window]]
    ],
) -> ReadRows:
    """Reader of given patterns' rows."""

    def read(
        windows: Sequence[Window], tokens: RowTokens, heads: Heads
    ) -> Iterator[tuple[int, int, ndarray]]:
        for number, (pattern, window) in enumerate(patterns(windows)):
            if number not in tokens:
                continue
            query, key = row_cells(window, tokens[number])
            for slot, (layer, head) in enumerate(heads):
                yield number, slot, np.asarray(pattern[layer, head])[query, key]

    return read


def row_cells(
    window: Window, tokens: Int[ndarray, " query"]
) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """Queries and keys of the rows of some tokens, one row after the other."""
    ends = window.attention_kind.row_end(tokens, len(window))
    query = np.repeat(tokens, ends)
    return query, np.arange(len(query)) - np.repeat(np.cumsum(ends) - ends, ends)
