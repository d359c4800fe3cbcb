"""Windows that run together, and their attention layer by layer: no more than a layer of a batch is
in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headscope.corpus.window import PADDING, Window
from headscope.models.engines.engine import Request, Tile, full_tile
from headscope.models.model import Model

BATCH_TOKENS = 1_024
"""Tokens of one forward pass on a processor; bounds memory. With twice as many, glibc hands GPT-2
small's temporaries back to the system and asks for new pages each time, a tenth of all time."""
ACCELERATOR_BATCH_TOKENS = 8_192
"""Tokens of one forward pass elsewhere."""
LITTLE_PADDING = 0.5
"""Share of the longest window of a batch that the others have, so that most cells are tokens."""
ALL_TOGETHER = sys.maxsize
"""Tokens of a forward pass that holds all windows."""
Regions = Callable[[Sequence[Window]], Sequence[Request]]
"""Regions that are read of every layer, for windows that run together."""


def batch_tokens_on(device: str) -> int:
    """Tokens of one forward pass on a device."""
    return BATCH_TOKENS if device == "cpu" else ACCELERATOR_BATCH_TOKENS


def in_batches(
    windows: Sequence[Window], tokens: int, *, least: float = 0.0
) -> Iterator[Sequence[Window]]:
    """Neighbouring windows, as many at a time as are so many tokens together, padding included.

    Args:
        windows: the order decides which run together.
        tokens: most tokens of a batch of several windows.
        least: a window that is shorter than this share of the batch's first begins another batch.

    >>> lengths = [6, 4, 3, 9]
    >>> windows = [Window("w", np.arange(n), ("a",) * n) for n in lengths]
    >>> [[len(window) for window in batch] for batch in in_batches(windows, 12)]
    [[6, 4], [3], [9]]
    >>> [[len(window) for window in batch] for batch in in_batches(windows, 24, least=0.6)]
    [[6, 4], [3, 9]]
    """
    start = 0
    while start < len(windows):
        stop, longest = start + 1, len(windows[start])
        while stop < len(windows):
            if len(windows[stop]) < least * len(windows[start]):
                break
            # with padding every window of a batch is as long as its longest
            longest = max(longest, len(windows[stop]))
            if (stop + 1 - start) * longest > tokens:
                break
            stop += 1
        yield windows[start:stop]
        start = stop


def padded_tokens(windows: Sequence[Window]) -> Int[Tensor, "window position"]:
    """Token ids, padded on the right with the beginning-of-text token.

    With −1 if queries would see it, as in an encoder: it must be hidden then.
    """
    first = windows[0]
    longest = max(map(len, windows))
    padding = PADDING if first.attention_kind.sees_future else first.tokens[0]
    ids = np.full((len(windows), longest), padding, first.tokens.dtype)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = window.tokens
    return torch.from_numpy(ids)


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """One layer's attention on the windows of a batch."""

    layer: int
    """Number of the layer in the model."""
    windows: Sequence[Window]
    regions: Sequence[Request]
    rows: Iterable[Any]
    """Rows or cells of each region, computed when it is reached; see `Engine.run`."""
    logarithms: bool
    """Rows are logarithms of probabilities instead of probabilities."""

    def probabilities(self) -> Iterator[Tensor]:
        """Attention in each region, in [0, 1]."""
        for rows in self.rows:
            yield rows.exp() if self.logarithms else rows


def stream_attention(
    model: Model,
    windows: Sequence[Window],
    regions: Regions,
    on_layer: Callable[[LayerAttention], None],
    *,
    batch_tokens: int = 1,
    layers: int | None = None,
) -> None:
    """Run windows, and hand on each layer's attention while the layer runs.

    Args:
        model: of any engine.
        windows: of text.
        regions: what is read: `whole_patterns`, or tiles, rows of queries, entries, or queries,
            keys and values of the fused engine.
        on_layer: called for each batch and layer in order; what it raises ends the run.
        batch_tokens: tokens of windows that run together; by default each runs alone.
        layers: the first layers of the model that are read; all when None.

    Raises:
        ModelError: the engine does not read such regions.
    """
    engine: Any = model.engine
    for batch in in_batches(windows, batch_tokens):
        requests = list(regions(batch))

        def take(
            layer: int,
            rows: Iterable[Any],
            batch: Sequence[Window] = batch,
            requests: Sequence[Request] = requests,
        ) -> None:
            on_layer(LayerAttention(layer, batch, requests, rows, engine.logarithms))

        engine.run(padded_tokens(batch).to(model.device), requests, take, layers)


def whole_patterns(windows: Sequence[Window]) -> list[Request]:
    """Every row of every window, as one tile."""
    return [full_tile(len(windows), max(map(len, windows)))]


def tiled_patterns(model: Model) -> Regions:
    """Every row of every window, in the tiles that an engine reads fastest."""

    def tiles(windows: Sequence[Window]) -> list[Tile]:
        return model.engine.layout(len(windows), max(map(len, windows)))

    return tiles
