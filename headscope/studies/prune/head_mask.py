"""A number for each head that multiplies what it hands to its output matrix, and its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.measure.batches import Batch
from headscope.measure.text_loss import Advance, in_chunks, predictions, token_count
from headscope.models.engines.modules import attention_layers

_OUTPUTS = ("c_proj", "dense", "o_proj", "out_proj")
"""What the layouts call the module that multiplies the heads' outputs z by W_O."""


@contextmanager
def masked(network: Any, mask: Float[Tensor, "layer *window head"]) -> Iterator[None]:
    """Within this context each head's z is multiplied by its number, before W_O.

    Args:
        network: the network of a fused engine.
        mask: 1 leaves a head as it is, 0 takes it away; per window too, if it has that axis,
            which must then fit the batch that is run.
    """
    with ExitStack() as stack:
        for layer, module in enumerate(output_modules(network)):
            hook = module.register_forward_pre_hook(_multiplied_by(mask[layer]))
            stack.callback(hook.remove)
        yield


def output_modules(network: Any) -> list[nn.Module]:
    """The module with each layer's W_O.

    Raises:
        ModelError: it has a name that is not known.
    """
    found: list[nn.Module] = []
    for attention in attention_layers(network):
        named: Any = next((getattr(attention, n) for n in _OUTPUTS if hasattr(attention, n)), None)
        if named is None:
            raise ModelError(f"no output matrix known for {type(attention).__name__}")
        found.append(named)
    return found


def head_importance(
    network: Any, text: Sequence[Batch], *, heads: int, advance: Advance = lambda _: None
) -> Float[ndarray, "layer head"]:
    """By how much the loss would change with each head's mask: E_x |∂L(x)/∂ξ_h| at ξ = 1.

    x is a window and L its loss; the mean is over predicted tokens, so that a long window counts
    for as much as its tokens: Σ_x |∂ nats(x)/∂ξ_h| / Σ_x tokens(x), in nats per token. Every
    window has a mask of its own, so that one backward pass serves a batch. Michel, Levy and Neubig
    2019, "Are Sixteen Heads Really Better than One?", section 4.1.

    Args:
        network: the network of a fused engine.
        text: from `text_batches`.
        heads: heads of a layer.
        advance: told the tokens of each batch when they are done.
    """
    layers = len(attention_layers(network))
    total, tokens = torch.zeros(layers, heads, dtype=torch.float64), 0
    with _without_gradients(network), torch.enable_grad():
        for batch in text:
            size = layers, len(batch.windows), heads
            mask = torch.ones(size, dtype=network.dtype, device=network.device, requires_grad=True)
            with masked(network, mask):
                tokens += _backward(network, batch)
            if mask.grad is None:
                raise ModelError("the loss does not depend on its attention heads")
            total += mask.grad.abs().sum(1).double().cpu()
            advance(token_count([batch]))
    return (total / tokens).numpy()


def by_layer(importance: Float[ndarray, "layer head"]) -> Float[ndarray, "layer head"]:
    """The importance in units of its layer's ℓ2 norm, as Michel et al. compare heads of layers.

    Raw gradients differ between layers by their depth alone (after Molchanov et al. 2017); a
    layer of zeros stays one.
    """
    norm = np.sqrt((importance**2).sum(1, keepdims=True))
    return importance / np.where(norm == 0, 1, norm)


def _multiplied_by(mask: Float[Tensor, "*window head"]) -> Any:
    def hook(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        heads = rearrange(
            given[0],
            "window position (head width) -> window position head width",
            head=mask.shape[-1],
        )
        # every position and every entry of a head's z has the head's number
        return (heads * mask[..., None, :, None].to(heads)).flatten(-2), *given[1:]

    return hook


def _backward(network: Any, batch: Batch) -> int:
    """Gradients of the batch's nats, in one pass back through the network; its predicted tokens.

    The losses' own gradients are taken chunk by chunk, so that few logits exist at once.
    """
    hidden, labels, lengths = predictions(network, batch)
    last = hidden.detach().requires_grad_()
    for _, losses in in_chunks(network, last, labels):
        losses.sum().backward()  # type: ignore[no-untyped-call]
    hidden.backward(last.grad)  # type: ignore[no-untyped-call]
    return sum(lengths)


@contextmanager
def _without_gradients(network: Any) -> Iterator[None]:
    """The weights need none: what is kept for the way back is then a fraction."""
    asked = [weight for weight in network.parameters() if weight.requires_grad]
    for weight in asked:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in asked:
            weight.requires_grad_(True)
