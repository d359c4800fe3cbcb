"""Attention patterns out of a model, one layer at a time, never all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.model_bridge.exceptions import StopAtLayerException

from headscope.errors import ModelError

OnLayer = Callable[[int, Float[Tensor, "batch head query key"]], None]

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 2e-2}
"""How far a row's sum may be from 1: rounding of the dtype over a few dozen keys."""


@torch.inference_mode()
def stream_patterns(
    bridge: Any, layers: int, tokens: Int[Tensor, "batch position"], on_layer: OnLayer
) -> None:
    """Run the model and hand each layer's pattern to `on_layer(layer, pattern)`.

    Right padding needs no mask: a causal model's earlier positions never see it. After the last
    pattern the run stops: no values, MLP or unembedding are computed above it.
    """

    def hook_for(layer: int) -> Callable[..., None]:
        def hook(pattern: Tensor, hook: Any) -> None:
            on_layer(layer, pattern)
            if layer == layers - 1:
                raise StopAtLayerException(pattern)

        return hook

    hooks = [(f"blocks.{layer}.attn.hook_pattern", hook_for(layer)) for layer in range(layers)]
    bridge.run_with_hooks(tokens, fwd_hooks=hooks, return_type=None, use_cache=False)


def check_patterns(
    bridge: Any, name: str, layers: int, heads: int, vocabulary_size: int, length: int = 12
) -> None:
    """Run one short batch and check that what the hooks give is causal attention.

    Raises:
        ModelError: a layer gave no pattern, another number of heads than configured, rows that
            do not sum to 1, or attention to later positions; the message names the layer.
    """
    seen: set[int] = set()

    def check(layer: int, pattern: Tensor) -> None:
        seen.add(layer)
        where = f"{name}: layer {layer}"
        if tuple(pattern.shape) != (2, heads, length, length):
            raise ModelError(
                f"{where} gave a pattern of shape {tuple(pattern.shape)}, but the configuration "
                f"says batch 2, {heads} heads, {length} × {length}"
            )
        row_sums = pattern.float().sum(-1)
        if not torch.allclose(
            row_sums, torch.ones_like(row_sums), atol=TOLERANCE.get(pattern.dtype, 1e-2)
        ):
            worst = float((row_sums - 1).abs().nan_to_num(nan=torch.inf).max())
            raise ModelError(f"{where}: rows of the pattern do not sum to 1 (off by {worst:.3g})")
        if bool(pattern.triu(1).any()):
            raise ModelError(f"{where} attends to later positions: not a causal model")

    tokens = torch.arange(2 * length).reshape(2, length) % vocabulary_size
    stream_patterns(bridge, layers, tokens.to(bridge.cfg.device), check)
    missing = sorted(set(range(layers)) - seen)
    if missing:
        raise ModelError(
            f"{name}: no attention pattern from layer {', '.join(map(str, missing))}; "
            "headscope reads softmax attention only"
        )
