"""Test that each head's output z reaches W_O in a slice of its own.

In most models W_O reads the heads' outputs side by side. Differential attention subtracts the
output of one head from that of another first, and a norm over all heads divides each by the length
of all. There, slice h of what W_O reads is not the output of attention map h.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.models.engines.attention import AttentionCall, Output, overridden
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.projections import (
    attention_modules,
    block_input,
    output_projection,
    projection_modules,
)

TOKENS = 4
"""Length of the text; it is run once for each head, and once as it is."""
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
"""Largest change of another head's slice by rounding, as a share of the length of all slices."""
_HALF_TOLERANCE = 2e-2


@torch.inference_mode()
def layers_with_mixed_heads(network: Any, dimensions: AttentionDimensions) -> tuple[int, ...]:
    """Numbers of the layers in which a head's output z changes the slices of other heads.

    In one forward pass, row 0 of a batch has the model's own heads, and in row h + 1 the output of
    head h is zero in every layer. The attention of every layer reads the stream of row 0 in all
    rows, so that only this layer's change is in what its W_O reads.

    Args:
        network: runs under the fused engine.
        dimensions: of its attention.
    """
    heads = dimensions.heads
    mixed: dict[int, bool] = {}
    running: list[int] = []

    def without_head(call: AttentionCall) -> Output:
        running.append(call.layer)
        output = call.output().clone()
        # row h + 1 lacks head h
        head = torch.arange(heads, device=output.device)
        output[head + 1, :, head] = 0
        return output

    def first_row_in_all(
        _: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # what earlier layers have changed would change every head of this one
        stream = block_input(arguments, keywords)
        first = stream[:1].expand_as(stream).contiguous()
        if arguments:
            return (first, *arguments[1:]), keywords
        return arguments, {**keywords, "hidden_states": first}

    def take(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        # W_O reads the output of the attention that was called last
        if running:
            slices = inputs[0].reshape(heads + 1, -1, inputs[0].shape[-1])
            mixed[running[-1]] = not _in_own_slices(slices, heads)

    # row 0 runs as it is, and row h + 1 without head h
    weight = network.get_input_embeddings().weight
    tokens = torch.arange(1, 1 + TOKENS, device=weight.device) % len(weight)
    with ExitStack() as hooks:
        for module in attention_modules(network):
            handle = module.register_forward_pre_hook(first_row_in_all, with_kwargs=True)
            hooks.enter_context(handle)
        for holder in projection_modules(network):
            hooks.enter_context(output_projection(holder).register_forward_pre_hook(take))
        hooks.enter_context(overridden(network, without_head))
        network.base_model(tokens.expand(heads + 1, -1), **dimensions.forward_options)
    return tuple(layer for layer in dimensions.attention_layers if mixed.get(layer, True))


def _in_own_slices(inputs: Float[Tensor, "row position _"], heads: int) -> bool:
    """Test if every row but the first differs from it in the slice of its head alone."""
    if inputs.shape[-1] % heads:
        return False
    z = inputs.float().view(*inputs.shape[:-1], heads, -1)
    difference = z[1:] - z[:1]
    squares = difference.square().sum((1, 3))  # of row × head
    change_of_head = squares.sqrt()
    tolerance = TOLERANCE.get(inputs.dtype, _HALF_TOLERANCE)
    allowed = tolerance * float(z[0].norm())
    is_changed: Bool[Tensor, "head head"] = change_of_head > allowed
    # in row h + 1 the slice of head h may change
    is_of_row = torch.eye(heads, dtype=torch.bool, device=z.device)
    is_mixed = is_changed & ~is_of_row
    return not bool(is_mixed.any())
