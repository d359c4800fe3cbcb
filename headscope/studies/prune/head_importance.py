"""The importance of heads: the gradient of the loss by a number that multiplies each head's z."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.models.batching import batch_tokens_on, in_batches
from headscope.models.intervention import HeadsScaled
from headscope.models.load import Model
from headscope.models.loss import Advance, chunked_losses, network_of, predictions_of


def head_importance(
    model: Model, windows: Sequence[Window], *, advance: Advance = lambda tokens: None
) -> Float[ndarray, "layer head"]:
    """By how much the loss would change with each head's mask: E_x |∂L(x)/∂ξ_h| at ξ = 1.

    x is a window and L its loss; the mean is over predicted tokens, so that a long window counts
    for as much as its tokens: Σ_x |∂ nats(x)/∂ξ_h| / Σ_x tokens(x), in nats per token. Every
    window has a mask of its own, so that one backward pass serves a batch. Michel, Levy and Neubig
    2019, "Are Sixteen Heads Really Better than One?", section 4.1.

    Args:
        model: a model that runs under the fused engine.
        windows: from `text_windows`.
        advance: called with the tokens of each batch when they are done.
    """
    network = network_of(model)
    options = {"dtype": network.dtype, "device": network.device, "requires_grad": True}
    total, tokens = torch.zeros(model.layers, model.heads, dtype=torch.float64), 0
    with _without_gradients(network), torch.enable_grad():
        # half as many at a time as without gradients: what the way back needs takes memory too
        for batch in in_batches(windows, batch_tokens_on(model.device) // 2):
            mask = torch.ones(model.layers, len(batch), model.heads, **options)
            with HeadsScaled.by_row(model, mask).applied(model):
                tokens += _backward(network, batch)
            if mask.grad is None:
                raise ModelError("the loss does not depend on its attention heads")
            total += mask.grad.abs().sum(1).double().cpu()
            advance(sum(map(len, batch)))
    return (total / tokens).numpy()


def layer_normalised(importance: Float[ndarray, "layer head"]) -> Float[ndarray, "layer head"]:
    """The importance in units of its layer's ℓ2 norm, as Michel et al. compare heads of layers.

    Raw gradients differ between layers by their depth alone (after Molchanov et al. 2017); a
    layer of zeros stays one.
    """
    norm = np.sqrt((importance**2).sum(1, keepdims=True))
    return importance / np.where(norm == 0, 1, norm)


def _backward(network: Any, batch: Sequence[Window]) -> int:
    """Gradients of the batch's nats, in one pass back through the network; its predicted tokens.

    The losses' own gradients are taken chunk by chunk, so that few logits exist at once.
    """
    predictions = predictions_of(network, batch)
    last = predictions.stream.detach().requires_grad_()
    for losses in chunked_losses(network, last, predictions.labels):
        losses.sum().backward()  # type: ignore[no-untyped-call]
    predictions.stream.backward(last.grad)  # type: ignore[no-untyped-call]
    return sum(predictions.lengths)


@contextmanager
def _without_gradients(network: Any) -> Iterator[None]:
    """Let the weights need no gradient: what is stored for the way back is then a fraction."""
    trainable = [weight for weight in network.parameters() if weight.requires_grad]
    for weight in trainable:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in trainable:
            weight.requires_grad_(True)
