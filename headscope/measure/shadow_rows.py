"""Rows of attention that shadows are fitted on: read from a model, or cut out of given patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch, batches, in_memory
from headscope.measure.contested_sampling import stretch
from headscope.measure.shadow import ReadRows, RowTokens
from headscope.models.engines.engine import Rows, full_tile
from headscope.models.model import Model
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
        by_window = {
            id(windows[number]): (number, positions) for number, positions in tokens.items()
        }
        unassigned = Batch(windows, np.zeros(len(windows), np.int64))
        for batch in batches(unassigned, tokens=batch_tokens):
            for rows in in_memory(batch, lambda part: _rows(model, part, by_window, heads)):
                yield from rows

    return read


def _rows(
    model: Model,
    batch: Batch,
    by_window: Mapping[int, tuple[int, Int[ndarray, " query"]]],
    heads: Heads,
) -> list[tuple[int, int, ndarray]]:
    """Rows of some heads in a batch; a window's number and tokens by its identity."""
    members = [
        (row, window, *by_window[id(window)])
        for row, window in enumerate(batch.windows)
        if id(window) in by_window
    ]
    results: list[tuple[int, int, ndarray]] = []

    def on_layer(layer: int, all_rows: Iterable[Rows]) -> None:
        slots = [slot for slot, (at, _) in enumerate(heads) if at == layer]
        for rows in all_rows if slots else ():
            for row, window, number, tokens in members:
                query, key = map(torch.from_numpy, row_cells(window, tokens))
                for slot in slots:
                    values = rows[row, heads[slot][1]][query, key].float()
                    values = values.exp() if model.engine.logarithms else values
                    results.append((number, slot, values.cpu().numpy()))

    if members:
        ids, last = batch.tokens().to(model.device), max(layer for layer, _ in heads)
        model.engine.run(ids, [full_tile(*ids.shape)], on_layer, last + 1)
    return results


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
