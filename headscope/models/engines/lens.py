"""The `lens` engine: each layer's pattern through TransformerLens hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.attention_kind import CAUSAL
from headscope.errors import ModelError
from headscope.models.engines.engine import (
    OnLayer,
    Request,
    SelfEntries,
    StoppedError,
    Tile,
    full_tile,
    slice_pattern,
)
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.projections import check_shapes

MATRICES = ("q", "k", "v", "o")


class LensEngine:
    """A TransformerLens bridge; any model that it wraps."""

    name = "lens"
    logarithms = False
    attention_kind = CAUSAL

    def __init__(self, bridge: Any, dimensions: AttentionDimensions) -> None:
        self.bridge = bridge
        self.dimensions = dimensions
        self.layers = dimensions.layers

    def layout(self, windows: int, length: int) -> list[Tile]:
        """One tile: the pattern is there as a whole."""
        return [full_tile(windows, length)]

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
        """Run tokens and hand on each layer's pattern; see `Engine.run`."""
        from transformer_lens.model_bridge.exceptions import StopAtLayerException

        last = (layers or self.layers) - 1
        values: dict[int, Tensor] = {}

        def show(layer: int, pattern: Tensor, request: Request) -> Any:
            attention = slice_pattern(pattern, request)
            if not isinstance(request, SelfEntries):
                return attention
            value = values.get(layer)
            if value is None or value.shape[:2] != tokens.shape:
                return attention, None
            return attention, value[request.window, torch.from_numpy(request.queries)].flatten(1)

        def keep(layer: int) -> Callable[..., None]:
            def hook(value: Tensor, hook: Any) -> None:
                values.clear()
                values[layer] = value

            return hook

        def hook_for(layer: int) -> Callable[..., None]:
            def hook(pattern: Tensor, hook: Any) -> None:
                on_layer(layer, (show(layer, pattern, tile) for tile in tiles))
                if layer == last and not on:
                    raise StopAtLayerException(pattern)

            return hook

        names = {layer: f"blocks.{layer}.attn.hook_pattern" for layer in range(last + 1)}
        hooks = [(name, hook_for(layer)) for layer, name in names.items()]
        if any(isinstance(request, SelfEntries) for request in tiles):
            value_names = {layer: f"blocks.{layer}.attn.hook_v" for layer in names}
            hook_names = self.bridge.hook_dict
            hooks += [
                (name, keep(layer)) for layer, name in value_names.items() if name in hook_names
            ]
        with suppress(StoppedError):
            self.bridge.run_with_hooks(tokens, fwd_hooks=hooks, return_type=None, use_cache=False)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer, in place.

        Raises:
            ModelError: a layer's attention shows no such matrices, or of another shape than
                heads × width.
        """
        all_matrices: list[Float[Tensor, ...]] = []
        for layer in range(self.layers):
            matrices = attention_matrices(self.bridge, layer)
            check_shapes(matrices, self.dimensions, f"layer {layer}")
            all_matrices += matrices
        return all_matrices


def attention_matrices(bridge: Any, layer: int) -> list[Float[Tensor, "out in"]]:
    """The Q, K, V and O matrices of a layer, as the bridge uses them.

    Raises:
        ModelError: the layer's attention has no such matrices.
    """
    attention = bridge.blocks[layer].attn
    weights = [getattr(getattr(attention, name, None), "weight", None) for name in MATRICES]
    matrices = [matrix.data for matrix in weights if matrix is not None]
    if len(matrices) < len(MATRICES):
        raise ModelError(
            f"layer {layer} shows no separate Q, K, V and O matrices, so that it has no twin; "
            "run without it (--no-twin)"
        )
    return matrices
