"""Gradients by activations: the weights are frozen, so that few activations are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from headscope.causal.direct_paths import FrozenNorm, norms_of
from headscope.models.layout.projections import attention_modules


@contextmanager
def frozen_weights(network: Any) -> Iterator[None]:
    """Take no gradients by weights within this context; fewer activations are kept then."""
    # a graph through weights would keep the inputs of every matrix
    trainable = [weight for weight in network.parameters() if weight.requires_grad]
    for weight in trainable:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in trainable:
            weight.requires_grad_(True)


@contextmanager
def smoothed(network: Any) -> Iterator[None]:
    """Gradients that hold the scale of each norm, and halve what passes a gate.

    A saturated head's own gradient can be a tenth of its effect: what it writes also raises the
    norm that divides it. Gates multiply two functions of one stream; a half of the product belongs
    to each (relevance patching, arXiv 2508.21258). Values of the forward pass are the same.
    """

    def hold_scale(
        norm: FrozenNorm, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor
    ) -> Tensor:
        """The norm's output, whose gradient takes the scale for a constant."""
        stream = inputs[0]
        scale = norm.scale(stream, output).detach()[..., None].to(stream)
        linear = scale * norm.linear(stream)
        return linear + (output - linear).detach()

    def halve_gradient(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The same input, with half of its gradient."""
        half = inputs[0] / 2
        return half + half.detach(), *inputs[1:]

    with ExitStack() as hooks:
        # norms and gates are all that stands between a head and the logits and is not linear, but
        # for attention
        for norm in norms_of(network):
            hook = norm.module.register_forward_hook(partial(hold_scale, norm))
            hooks.enter_context(hook)
        for layer in _down_projections(network):
            hooks.enter_context(layer.register_forward_pre_hook(halve_gradient))
        yield


def _down_projections(network: Any) -> Iterator[nn.Module]:
    """The last linear layer of each MLP whose input is a product with a gate."""
    attentions = set(attention_modules(network))
    for module in network.modules():
        # a gate and the matrix that it multiplies lie side by side, so that together they are twice
        # as wide as what the last matrix reads
        linear = [part for part in module.children() if isinstance(part, nn.Linear)]
        if module in attentions or len(linear) < 2:
            continue
        *inward, outward = linear
        gated = sum(part.out_features for part in inward) == 2 * outward.in_features
        if gated and outward.out_features == inward[0].in_features:
            yield outward
