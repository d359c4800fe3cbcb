"""The `lens` engine: each layer's pattern through TransformerLens hooks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from jaxtyping import Float, Int
from torch import Tensor

from headscope.attention_kind import CAUSAL
from headscope.errors import ModelError
from headscope.models.engines.engine import (
    OnLayer,
    Request,
    StoppedError,
    Tile,
    full_tile,
    slice_pattern,
)
from headscope.models.layout.dimensions import AttentionDimensions

MATRICES = ("q", "k", "v", "o")


class LensEngine:
    """A TransformerLens bridge; any model that it wraps."""

    name = "lens"
    logarithms = False
    attention_kind = CAUSAL

    def __init__(self, bridge: Any, dimensions: AttentionDimensions) -> None:
        self.bridge = bridge
        self.dimensions = dimensions
        self.attention_layers = dimensions.attention_layers

    def layout(self, windows: int, length: int) -> list[Tile]:
        """One tile: the pattern is there as a whole."""
        return [full_tile(windows, length)]

    @torch.inference_mode()
    def run(
        self,
        tokens: Int[Tensor, "window position"],
        requests: Sequence[Request],
        on_layer: OnLayer,
        layers: int | None = None,
        *,
        on: bool = False,
    ) -> None:
        """Run tokens and hand on each layer's pattern; see `Engine.run`."""
        from transformer_lens.model_bridge.exceptions import StopAtLayerException

        # layers behind the last one are not run
        last = max(n for n in self.attention_layers if layers is None or n < layers)

        def take_pattern(pattern: Tensor, hook: Any, layer: int) -> None:
            if layer in self.attention_layers:
                on_layer(layer, (slice_pattern(pattern, request) for request in requests))
            if layer == last and not on:
                raise StopAtLayerException(pattern)

        hooks = [
            (f"blocks.{layer}.attn.hook_pattern", partial(take_pattern, layer=layer))
            for layer in range(last + 1)
        ]
        with suppress(StoppedError):
            self.bridge.run_with_hooks(tokens, fwd_hooks=hooks, return_type=None, use_cache=False)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer, in place.

        Raises:
            ModelError: a layer's attention shows no such matrices.
        """
        matrices: list[Float[Tensor, ...]] = []
        for layer in range(self.dimensions.layers):
            attention = self.bridge.blocks[layer].attn
            try:
                matrices += [getattr(attention, name).weight.data for name in MATRICES]
            except AttributeError as error:
                raise ModelError(
                    f"layer {layer} shows no separate Q, K, V and O matrices, so that it has no "
                    "null model; run without --null-model"
                ) from error
        return matrices


def boot(name: str, network: Any, tokenizer: Any, dimensions: AttentionDimensions) -> LensEngine:
    """Wrap a Hugging Face model; its modules are replaced by the bridge's."""
    # no model that the fused engine reads needs it, and it takes a second to import
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    # TransformerLens loads a tokenizer again from its own name, which may be one on the hub
    with TemporaryDirectory(prefix="headscope-") as folder:
        tokenizer.save_pretrained(folder)
        bridge = build_bridge_from_module(
            network,
            network.config.architectures[0],
            hf_config=network.config,
            model_name=name,
            tokenizer=transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            ),
        )
    return LensEngine(bridge, dimensions)
