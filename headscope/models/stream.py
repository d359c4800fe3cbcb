"""Attention of a model on windows, layer by layer: no more than a layer of a batch is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.batching import in_batches, padded_tokens
from headscope.models.engines.engine import Request, Tile, full_tile
from headscope.models.load import Model

Regions = Callable[[Sequence[Window]], Sequence[Request]]
"""Regions that are read of every layer, for windows that run together."""


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
    """Whether these are logarithms of probabilities instead of probabilities."""

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
            keys and values (`headscope.models.engines.engine.Vectors`) of the fused engine.
        on_layer: called for each batch and layer in order; what it raises ends the run.
        batch_tokens: tokens of windows that run together; by default each runs by itself.
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
