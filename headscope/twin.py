"""The twin: the same model with every attention matrix shuffled, which has learned nothing.

What its heads score is what this architecture shows by chance on this text, with these embeddings,
norms and MLPs. A real head must beat it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.corpus.window import Window
from headscope.errors import ModelError

EVERY = 4
"""The twin reads one window of four: a percentile over heads needs less text than one head."""
MATRICES = ("q", "k", "v", "o")


@contextmanager
def shuffled(bridge: Any, layers: int, *, seed: int) -> Iterator[None]:
    """Within this context the entries of each Q, K, V and O matrix are permuted, in place.

    Embeddings, norms, MLPs and all biases stay. Afterwards every entry is back where it was.

    Args:
        bridge: a TransformerLens bridge.
        layers: its number of layers.
        seed: seeds the permutations.

    Raises:
        ModelError: an attention layer shows no such matrices.
    """
    matrices = [m for layer in range(layers) for m in attention_matrices(bridge, layer)]
    _permute(matrices, seed, back=False)
    try:
        yield
    finally:
        _permute(matrices, seed, back=True)


def attention_matrices(bridge: Any, layer: int) -> list[Float[Tensor, "out in"]]:
    """The Q, K, V and O matrices of a layer, as the model uses them.

    Raises:
        ModelError: the layer's attention has no such matrices.
    """
    attention = bridge.blocks[layer].attn
    found = [getattr(getattr(attention, name, None), "weight", None) for name in MATRICES]
    matrices = [matrix.data for matrix in found if matrix is not None]
    if len(matrices) < len(MATRICES):
        raise ModelError(
            f"layer {layer} shows no separate Q, K, V and O matrices, so that it has no twin; "
            "run without it (--no-twin)"
        )
    return matrices


def share(windows: Sequence[Window], *, seed: int) -> list[Window]:
    """The windows that the twin reads: one of every four of each stimulus, drawn, in order.

    Drawn, because several corpora take turns: every fourth window could be of one of them.
    """
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    for stimulus in dict.fromkeys(window.stimulus for window in windows):
        own = [i for i, window in enumerate(windows) if window.stimulus == stimulus]
        groups = [own[start : start + EVERY] for start in range(0, len(own), EVERY)]
        chosen += [group[int(rng.integers(len(group)))] for group in groups]
    return [windows[i] for i in sorted(chosen)]


@torch.no_grad()
def _permute(matrices: Sequence[Tensor], seed: int, *, back: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    for matrix in matrices:
        order = torch.randperm(matrix.numel(), generator=generator).to(matrix.device)
        flat = matrix.flatten()
        moved = torch.empty_like(flat).scatter_(0, order, flat) if back else flat[order]
        matrix.copy_(moved.view_as(matrix))
