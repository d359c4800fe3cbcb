"""What an engine is: a way to run a model and look at its attention, layer by layer.

Two engines give the same sums: `lens` hooks the pattern that TransformerLens builds, and `fused`
never builds one. Both hand on attention rows tile by tile, so that what is summed from them is
written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

Rows = Float[Tensor, "window head query key"]
OnLayer = Callable[[int, Iterable[Rows]], None]
OnPattern = Callable[[int, Float[Tensor, "batch head query key"]], None]


@dataclass(frozen=True)
class Tile:
    """A stretch of attention rows: whole windows of a batch, or some queries of one window.

    Its keys are those up to its last query.
    """

    windows: slice
    queries: slice

    @property
    def keys(self) -> int:
        """How many keys a row of this tile has."""
        return int(self.queries.stop)

    @property
    def shape(self) -> tuple[int, int]:
        """Its windows and queries."""
        return (
            self.windows.stop - self.windows.start,
            self.queries.stop - self.queries.start,
        )


@runtime_checkable
class Engine(Protocol):
    """A model that shows its attention."""

    name: str
    layers: int
    logarithms: bool
    """Whether rows come as logarithms of probabilities instead of probabilities."""

    def layout(self, windows: int, length: int) -> list[Tile]:
        """The tiles in which the rows of such a batch come, in order."""

    def run(
        self,
        tokens: Int[Tensor, "window position"],
        tiles: list[Tile],
        on_layer: OnLayer,
        layers: int | None = None,
    ) -> None:
        """Run right-padded tokens and hand on each layer's rows, a tensor for each tile.

        Right padding needs no mask: a causal model's earlier positions never see it. The run
        stops after the last rows of the first `layers` layers (all when None).
        """

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer as views into the weights that the model uses."""


def whole(windows: int, length: int) -> Tile:
    """All rows of a batch as one tile."""
    return Tile(slice(0, windows), slice(0, length))


def stream_patterns(
    engine: Engine,
    tokens: Int[Tensor, "batch position"],
    on_pattern: OnPattern,
    layers: int | None = None,
) -> None:
    """Run the model and give `on_pattern(layer, pattern)` each layer's pattern, one at a time."""

    def on_layer(layer: int, rows: Iterable[Rows]) -> None:
        for pattern in rows:
            on_pattern(layer, pattern.exp() if engine.logarithms else pattern)

    engine.run(tokens, [whole(*tokens.shape)], on_layer, layers)
