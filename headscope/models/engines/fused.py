"""The `fused` engine: the framework's own attention kernel, and rows of scores beside it.

The kernel returns the layer's output and the log-sum-exp of every row; scores minus that are
log-probabilities, and exponentials are taken only of the cells that a relation asks about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.attention_kind import AttentionKind
from headscope.errors import ModelError
from headscope.models.engines.adapters import attend_by, reaches
from headscope.models.engines.capture import NAME, capturing, noting_windows
from headscope.models.engines.engine import OnLayer, Request, StoppedError, Tile
from headscope.models.engines.log_attention import Scores, log_probabilities
from headscope.models.engines.probe import Probe, check_probe, only_forward
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.modules import attention_modules, projection_modules
from headscope.models.layout.projections import attention_weight_views

BLOCK_CELLS = 2**20
"""Cells of a tile, all heads together, unless 16 rows have more: 4 MB stay in a cache."""
LEAST_ROWS = 16


class FusedEngine:
    """A Hugging Face model with softmax attention; of a hybrid those layers that have it.

    Raises:
        ModelError: it has another kind of attention: the message says what is different.
    """

    name = "fused"
    logarithms = True

    def __init__(self, network: Any, dimensions: AttentionDimensions, probed: Probe) -> None:
        self.network = network
        self.dimensions = dimensions
        self.heads = dimensions.heads
        self.layers = len(dimensions.attention_layers)
        self.attention_kind = dimensions.attention_kind
        self.sinks = False
        """Whether a learned sink takes a share of some rows, so that they sum to less than 1."""
        attend_by(network, NAME)
        with noting_windows() as windows:
            check_probe(self, probed, "softmax(q·k)")
        self.windows = frozenset(windows | reaches(network))
        """Reaches of layers, in tokens, that the model's own masks are seen to tell of."""
        if len(attention_modules(network)) != self.layers or not self.matrices():
            raise ModelError("its attention matrices are not where they are looked for")

    def layout(self, windows: int, length: int) -> list[Tile]:
        """Tiles of at most about a million cells."""
        return tiles_of(windows, length, heads=self.heads, attention_kind=self.attention_kind)

    @torch.inference_mode()
    def run(
        self,
        tokens: Int[Tensor, "window position"],
        tiles: Sequence[Request],
        on_layer: OnLayer,
        layers: int | None = None,
        *,
        on: bool = False,
    ) -> None:
        """Run tokens and hand on each layer's log-probabilities; see `Engine.run`."""
        last = max(n for n in self.dimensions.attention_layers if layers is None or n < layers)

        def take(layer: int, scores: Scores) -> None:
            self.sinks |= scores.terms.sink is not None
            on_layer(layer, (log_probabilities(scores, request) for request in tiles))
            if layer == last and not on:
                raise StoppedError

        options: dict[str, Any] = only_forward(self.dimensions)
        if self.attention_kind.sees_future:
            visible = tokens >= 0
            tokens, options = (
                tokens.clamp_min(0),
                {"attention_mask": None if visible.all() else visible},
            )
        with capturing(take), stopped():
            self.network.base_model(tokens, **options)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer, in place."""
        modules = projection_modules(self.network)
        return [matrix for m in modules for matrix in attention_weight_views(m, self.dimensions)]


def tiles_of(windows: int, length: int, *, heads: int, attention_kind: AttentionKind) -> list[Tile]:
    """All rows of a batch in tiles of at most about a million cells."""
    cells = BLOCK_CELLS // (heads * length)
    width = length if attention_kind.sees_future else None
    at_once = cells // length
    if at_once:
        starts = range(0, windows, at_once)
        return [Tile(slice(w, min(w + at_once, windows)), slice(0, length), width) for w in starts]
    rows = max(LEAST_ROWS, cells)
    return [
        Tile(slice(w, w + 1), slice(q, min(q + rows, length)), width)
        for w in range(windows)
        for q in range(0, length, rows)
    ]


@contextmanager
def stopped() -> Iterator[None]:
    """Within this context a run may end by `StoppedError`."""
    try:
        yield
    except StoppedError:
        return
