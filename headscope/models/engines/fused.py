"""The `fused` engine: the framework's own attention kernel, and rows of scores.

The kernel returns the layer's output and the log-sum-exp of every row; scores minus that are
log-probabilities, and exponentials are taken only of the cells that a relation asks about.

Layouts that transformers wrote before its attention interface are adapted. Each adapter replaces a
method of one attention module, makes queries, keys and values as the module's own code does, and
hands them to the registered function. What the model builds as a mask is left aside: texts are
padded on the right alone, and a causal model never sees that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import MethodType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.models.engines.attention import NAME, attention, capturing
from headscope.models.engines.engine import OnLayer, Request, StoppedError, Tile
from headscope.models.engines.scores import Scores, log_probabilities
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.projections import (
    number_layers,
    projection_modules,
    projections,
)

EAGER = "eager"
"""transformers' name for a model's own code, which computes whole patterns."""
BLOCK_CELLS = 2**20
"""Cells of a tile, all heads together, unless 16 rows have more: 4 MB stay in a cache."""
LEAST_ROWS = 16


class FusedEngine:
    """A Hugging Face model with softmax attention; of a hybrid those layers that have it."""

    name = "fused"
    logarithms = True

    def __init__(self, network: Any, dimensions: AttentionDimensions) -> None:
        self.network = network
        self.dimensions = dimensions
        self.attention_layers = dimensions.attention_layers
        self.attention_kind = dimensions.attention_kind
        self.sinks = False
        """A learned sink takes a share of some rows, so that they sum to less than 1."""
        attend_by(network, NAME)

    def layout(self, windows: int, length: int) -> list[Tile]:
        """Tiles of at most about a million cells."""
        cells = BLOCK_CELLS // (self.dimensions.heads * length)
        width = length if self.attention_kind.sees_future else None
        at_once = cells // length
        if at_once:
            starts = range(0, windows, at_once)
            parts = [slice(start, min(start + at_once, windows)) for start in starts]
            return [Tile(part, slice(0, length), width) for part in parts]
        rows = max(LEAST_ROWS, cells)
        return [
            Tile(slice(w, w + 1), slice(q, min(q + rows, length)), width)
            for w in range(windows)
            for q in range(0, length, rows)
        ]

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
        last = max(n for n in self.attention_layers if layers is None or n < layers)

        def take(layer: int, scores: Scores) -> None:
            self.sinks |= scores.terms.sink is not None
            if layer in self.attention_layers:
                on_layer(layer, (log_probabilities(scores, request) for request in tiles))
            if layer == last and not on:
                raise StoppedError

        options: dict[str, Any] = self.dimensions.forward_options
        if self.attention_kind.sees_future:
            visible = tokens >= 0
            tokens, options = (
                tokens.clamp_min(0),
                {"attention_mask": None if visible.all() else visible},
            )
        with capturing(self.network, take), suppress(StoppedError):
            self.network.base_model(tokens, **options)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer, in place."""
        modules = projection_modules(self.network)
        return [matrix for m in modules for matrix in projections(m, self.dimensions)]


def attend_by(network: Any, name: str) -> None:
    """Let a network's attention be computed by a function of transformers' interface.

    Args:
        network: a model of transformers.
        name: `headscope` or `eager`.
    """
    number_layers(network)
    modules = adapted_modules(network)
    if not modules:
        network.set_attn_implementation(name)
    for layer, module in enumerate(modules):
        kind = type(module).__name__
        method, replacement = _ADAPTERS[kind]
        vars(module).pop(method, None)
        if name != EAGER:
            setattr(module, method, MethodType(replacement, module))
            # attributes of modules that use the interface
            module.layer_idx, module.is_causal = layer, True
        elif kind == "FalconAttention":
            module.forward = MethodType(_eager_falcon, module)


def adapted_modules(network: nn.Module) -> list[Any]:
    """The attention modules that need an adapter, in the order of the layers."""
    return [module for module in network.modules() if type(module).__name__ in _ADAPTERS]


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Every head's output, `[batch position head width]`."""
    return attention(
        module, query.to(value.dtype), key.to(value.dtype), value, mask, scaling=scale
    )[0]


def _scores_of_gpt_neo(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, None]:
    """GPT-Neo does not scale its scores; its local layers have masks of their own."""
    length, local = key.shape[-2], None
    if module.attention_type == "local" and length > module.config.window_size:
        local = module.bias[:, :, :length, :length]
    return _attend(module, query, key, value, local, 1.0).transpose(1, 2), None


def _forward_of_bloom(
    module: Any, states: Tensor, residual: Tensor, alibi: Tensor, *_: Any, **options: Any
) -> tuple[Tensor, None]:
    query, key, value = module._reshape(module.query_key_value(states))
    scale = module.inv_norm_factor
    by_head = alibi.view(len(states), module.num_heads, -1)
    query, key = _with_bias(query, key, by_head / scale)
    output = module.dense(_attend(module, query, key, value, None, scale).flatten(2))
    return residual + output, None


def _forward_of_falcon(
    module: Any,
    states: Tensor,
    alibi: Tensor | None = None,
    position_embeddings: tuple[Tensor, Tensor] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    # only a Falcon gets here, so that its code is loaded already
    from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

    split = module._split_heads(module.query_key_value(states))
    query, key, value = (part.transpose(1, 2) for part in split)
    if alibi is not None:
        query, key = _with_bias(query, key, alibi.view(len(states), module.num_heads, -1))
    elif position_embeddings is not None:
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
    scale = module.inv_norm_factor
    return module.dense(_attend(module, query, key, value, None, scale).flatten(2)), None


_ADAPTERS: dict[str, tuple[str, Callable[..., tuple[Tensor, None]]]] = {
    "BloomAttention": ("forward", _forward_of_bloom),
    "FalconAttention": ("forward", _forward_of_falcon),
    "GPTNeoSelfAttention": ("_attn", _scores_of_gpt_neo),
}
"""The method that is replaced, and its replacement, by the class of an attention module."""


def _with_bias(query: Tensor, key: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """One more number of each query and key, whose product is a bias that depends on the key.

    ALiBi is linear in the distance, and what all keys of a query have in common changes no
    softmax; so no matrix of biases is needed, and the plain kernel computes it.
    """
    if key.shape[1] < bias.shape[1]:
        key = key.repeat_interleave(bias.shape[1] // key.shape[1], 1)
    added = bias[..., None].to(key.dtype).expand(*key.shape[:3], 1)
    return torch.cat([query, torch.ones_like(query[..., :1])], -1), torch.cat([key, added], -1)


def _eager_falcon(module: Any, states: Tensor, *args: Any, **options: Any) -> Any:
    """Falcon's own code with ALiBi added once.

    transformers adds it to the mask for its kernels, and its eager attention adds it again.
    """
    mask = options.get("attention_mask")
    if options.get("alibi") is not None and mask is not None:
        visible = mask > torch.finfo(mask.dtype).min / 2
        options["attention_mask"] = mask.masked_fill(visible, 0)
    return type(module).forward(module, states, *args, **options)
