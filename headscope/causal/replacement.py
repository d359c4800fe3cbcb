"""Patterns that replace those of heads while a model runs; values and W_O stay the model's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscope.causal.intervention import AttentionChange
from headscope.models.engines.attention import AttentionCall, Output

HeadPatterns = Float[Tensor, "window _ query key"]
"""Patterns of the replaced heads of a layer in order, or one for all of them; a row sums to 1."""


@dataclass(frozen=True, eq=False)
class Replacement(AttentionChange):
    """Heads that attend by patterns from elsewhere.

    The pattern of a layer is computed when the layer is reached, so that it may depend on the
    changed residual stream. Layouts with grouped query heads are supported: each replaced head
    reads the values of its own group.
    """

    heads: Mapping[int, Sequence[int]]
    """Replaced heads by layer."""
    pattern: Callable[[AttentionCall], HeadPatterns]
    """Patterns of the replaced heads of the layer that is called, for the batch that runs."""

    @property
    def layers(self) -> frozenset[int]:
        """Numbers of the layers with replaced heads."""
        return frozenset(self.heads)

    def attend(self, call: AttentionCall) -> Output:
        """Values weighted by the patterns; other heads of the layer attend by their own."""
        replaced = list(self.heads[call.layer])
        heads = call.query.shape[1]
        group_size = heads // call.value.shape[1]
        group_of_replaced = [head // group_size for head in replaced]
        values = call.value[:, group_of_replaced]
        pattern = self.pattern(call).to(values)
        mixed = (pattern @ values).transpose(1, 2)
        if replaced == list(range(heads)):
            return mixed.contiguous()
        output = call.output()
        output[:, :, replaced] = mixed
        return output


def softmax_over_visible(
    logits: Float[Tensor, "_ head query key"], visible: Bool[Tensor, "_ _ query key"]
) -> Float[Tensor, "window head query key"]:
    """Patterns of logits over the keys that each query sees; 0 for a query that sees no key.

    Args:
        logits: one table for all windows if the first axis is 1.
        visible: see `AttentionCall.visible`.

    >>> logits = torch.zeros(1, 1, 2, 2)
    >>> softmax_over_visible(logits, torch.ones(1, 1, 2, 2, dtype=torch.bool).tril())[0, 0]
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    hidden = logits.masked_fill(~visible, -torch.inf)
    return hidden.softmax(-1).nan_to_num(0.0)
