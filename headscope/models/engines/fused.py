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

from headscope.errors import ModelError
from headscope.models.engines.engine import OnLayer, Read, StoppedError, Tile
from headscope.models.engines.interface import NAME, noting_windows, reading
from headscope.models.engines.modules import attend_by, attention_layers, reaches, with_outputs
from headscope.models.engines.probe import Probe, check_probe, only_forward
from headscope.models.engines.rows import Scores, log_probabilities
from headscope.models.layout import Layout
from headscope.models.matrices import attention_matrices

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

    def __init__(self, network: Any, stated: Layout, probed: Probe) -> None:
        self.network = network
        self.stated = stated
        self.heads = stated.heads
        self.layers = len(stated.attention_layers)
        self.both_ways = stated.both_ways
        """Whether a token sees those after it too."""
        self.sinks = False
        """Whether a learned sink takes a share of some rows, so that they sum to less than 1."""
        attend_by(network, NAME)
        with noting_windows() as windows:
            check_probe(self, probed, "softmax(q·k)")
        self.windows = frozenset(windows | reaches(network))
        """Reaches of layers, in tokens, that the model's own masks are seen to tell of."""
        if len(attention_layers(network)) != self.layers or not self.matrices():
            raise ModelError("its attention matrices are not where they are looked for")

    def layout(self, windows: int, length: int) -> list[Tile]:
        """Tiles of at most about a million cells."""
        return tiles_of(windows, length, heads=self.heads, both_ways=self.both_ways)

    @torch.inference_mode()
    def run(
        self,
        tokens: Int[Tensor, "window position"],
        tiles: Sequence[Read],
        on_layer: OnLayer,
        layers: int | None = None,
        *,
        on: bool = False,
    ) -> None:
        """Run tokens and hand on each layer's log-probabilities; see `Engine.run`."""
        last = max(n for n in self.stated.attention_layers if layers is None or n < layers)

        def take(layer: int, scores: Scores) -> None:
            self.sinks |= scores.beside.sink is not None
            on_layer(layer, (log_probabilities(scores, look) for look in tiles))
            if layer == last and not on:
                raise StoppedError

        more: dict[str, Any] = only_forward(self.stated)
        if self.stated.both_ways:
            seen = tokens >= 0
            tokens, more = tokens.clamp_min(0), {"attention_mask": None if seen.all() else seen}
        with reading(take), stopped():
            self.network.base_model(tokens, **more)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer, in place."""
        layers = with_outputs(self.network, attention_layers(self.network))
        return [matrix for layer in layers for matrix in attention_matrices(layer, self.stated)]


def tiles_of(windows: int, length: int, *, heads: int, both_ways: bool) -> list[Tile]:
    """All rows of a batch in tiles of at most about a million cells."""
    room = BLOCK_CELLS // (heads * length)
    width = length if both_ways else None
    at_once = room // length
    if at_once:
        starts = range(0, windows, at_once)
        return [Tile(slice(w, min(w + at_once, windows)), slice(0, length), width) for w in starts]
    rows = max(LEAST_ROWS, room)
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
