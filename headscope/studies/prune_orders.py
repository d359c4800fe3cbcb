"""Orders in which heads are masked: by importance, by the loss without a head, and greedily."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import reduce
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.causal.gradients import frozen_weights
from headscope.causal.intervention import HeadsScaled
from headscope.causal.loss import Advance, chunked_losses, logit_map, predictions_of
from headscope.causal.text_losses import text_losses
from headscope.corpus.window import Window
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of
from headscope.models.stream import batch_tokens_on, in_batches, padded_tokens

STEPS = tuple(i / 10 for i in range(11))
"""Shares of heads that are masked."""
SINGLE_HEAD_READS = 2**17
"""Heads × tokens that are read to measure the loss without each head: 256 tokens for 270 heads."""
CANDIDATES = 2
"""Candidates of a greedy step for each head that it masks."""
_HeadOrder = Int[ndarray, " ranked_head"]


@dataclass(frozen=True, eq=False)
class SingleHeads:
    """Cost of masking one head at a time."""

    model: Model
    windows: Sequence[Window]
    advance: Advance

    def rises(self, heads: Sequence[int], masked: Sequence[int]) -> Float[ndarray, " candidate"]:
        """The rise of the loss when one more head is masked, for each of some heads.

        Args:
            heads: candidates, numbered through all layers.
            masked: heads that are masked already.
        """
        changes = {head: self._without(head) for head in heads}
        base = heads_masked(self.model, masked) if len(masked) else None
        losses = text_losses(self.model, self.windows, changes, base=base, advance=self.advance)
        before = losses.unchanged.mean
        return np.array([losses.changed[head].mean - before for head in heads])

    def _without(self, head: int) -> HeadsScaled:
        """The mask of one head; layers below it stay as they are."""
        row, column = divmod(head, self.model.heads)
        factors = torch.ones(self.model.heads)
        factors[column] = 0
        return HeadsScaled({self.model.attention_layers[row]: factors})


def heads_masked(model: Model, heads: Sequence[int] | _HeadOrder) -> HeadsScaled:
    """The intervention that masks heads, numbered through all layers with attention."""
    present = torch.ones(model.layers * model.heads)
    present[list(heads)] = 0
    return HeadsScaled.by_row(model, present.view(model.layers, model.heads))


def step_ends(heads: int) -> list[int]:
    """Number of masked heads at each of `STEPS`.

    >>> step_ends(8)
    [0, 1, 2, 2, 3, 4, 5, 6, 6, 7, 8]
    """
    return [round(share * heads) for share in STEPS]


def single_head_windows(windows: Sequence[Window], heads: int) -> Sequence[Window]:
    """The first windows, as many as `SINGLE_HEAD_READS` allows; at least one."""
    tokens = 0
    for count, window in enumerate(windows):
        tokens += len(window)
        if count and tokens * heads > SINGLE_HEAD_READS:
            return windows[:count]
    return windows


def greedy_order(single: SingleHeads, rises: Float[ndarray, " ranked_head"]) -> _HeadOrder:
    """Heads in the order in which a greedy search masks them.

    Each step masks the next tenth of the heads: those whose masking raises the loss least, with all
    earlier ones masked. It measures twice as many heads as it masks: those with the smallest rise
    when they were measured last. A head's rise mostly grows as others are masked (lazy greedy,
    Minoux 1978).

    Args:
        single: measures the rises.
        rises: of the loss with each head masked alone.
    """
    last = rises.copy()
    order: list[int] = []
    for count in greedy_counts(len(rises)):
        candidates = _smallest(last, order, CANDIDATES * count)
        if order:
            last[candidates] = single.rises(candidates, order)
        order += _smallest(last, order, count)
    return np.array(order)


def greedy_counts(heads: int) -> list[int]:
    """Heads that each step masks."""
    return np.diff(step_ends(heads)).tolist()


def greedy_passes(heads: int) -> int:
    """Forward passes of a greedy search, over what it reads."""
    masked, passes = 0, 0
    for count in greedy_counts(heads):
        if masked:
            passes += 1 + min(CANDIDATES * count, heads - masked)
        masked += count
    return passes


def _smallest(
    rises: Float[ndarray, " ranked_head"], masked: Sequence[int], count: int
) -> list[int]:
    """Heads with the smallest rises among those that are not masked yet."""
    by_rise = np.argsort(rises, kind="stable").tolist()
    already = set(masked)
    return [head for head in by_rise if head not in already][:count]


def head_importance(
    model: Model, windows: Sequence[Window], *, advance: Advance = lambda tokens: None
) -> Float[ndarray, "layer head"]:
    """Mean absolute gradient of the loss by each head's mask, in nats per token.

        Σ_x |∂ nats(x)/∂ξ_h| / Σ_x tokens(x)  at ξ = 1, over windows x

    (Michel, Levy and Neubig 2019, "Are Sixteen Heads Really Better than One?", section 4.1). Every
    window has its own mask, so that one backward pass serves a batch.

    The loss of an encoder, the distance of its states from the untouched ones, has no gradient at
    ξ = 1. Its place is taken by a random projection of the states: the expected square of that
    gradient is the squared length of the states' own derivative.

    The model runs under the fused engine.
    """
    network = plain_network_of(model)
    if model.attention_kind.predicts_next:
        # it runs the network, and is kept: not with heads scaled by window
        logit_map(network)
    backward = _backward if model.attention_kind.predicts_next else _encoder_backward
    options = {"dtype": network.dtype, "device": network.device, "requires_grad": True}
    total, tokens = torch.zeros(model.layers, model.heads, dtype=torch.float64), 0
    with frozen_weights(network), torch.enable_grad():
        # activations kept for the backward pass take as much memory again
        for batch in in_batches(windows, batch_tokens_on(model.device) // 2):
            mask = torch.ones(model.layers, len(batch), model.heads, **options)
            with HeadsScaled.by_row(model, mask).applied(model):
                tokens += backward(network, batch)
            assert mask.grad is not None
            gradient = mask.grad.abs().double().cpu()
            total += reduce(gradient, "layer window head -> layer head", "sum")
            advance(sum(map(len, batch)))
    return (total / tokens).numpy()


def layer_normalised(importance: Float[ndarray, "layer head"]) -> Float[ndarray, "layer head"]:
    """Importance divided by its layer's ℓ2 norm, since gradients differ in scale between layers."""
    norm = np.sqrt((importance**2).sum(1, keepdims=True))
    return importance / np.where(norm == 0, 1, norm)


def _backward(network: Any, batch: Sequence[Window]) -> int:
    """Backpropagate the summed loss of a batch; returns its number of predicted tokens.

    Gradients of the loss are taken chunk by chunk, so that few logits are in memory at once.
    """
    predictions = predictions_of(network, batch)
    last = predictions.stream.detach().requires_grad_()
    for losses in chunked_losses(network, last, predictions.labels):
        losses.sum().backward()  # type: ignore[no-untyped-call]
    predictions.stream.backward(last.grad)  # type: ignore[no-untyped-call]
    return sum(predictions.lengths)


def _encoder_backward(network: Any, batch: Sequence[Window]) -> int:
    """Backpropagate a random projection of the last states; returns their number.

    States have length 1 and random signs (Hutchinson 1990), the same for the same number of tokens.
    """
    tokens = padded_tokens(batch).to(network.device)
    visible = tokens >= 0
    output = network.base_model(tokens.clamp_min(0), attention_mask=visible)
    states = output.last_hidden_state[visible]
    lengths = states.detach().norm(dim=-1, keepdim=True)
    generator = torch.Generator().manual_seed(len(states))
    signs = torch.randint(0, 2, states.shape, generator=generator) * 2 - 1
    projected = states / lengths * signs.to(states)
    projected.sum().backward()
    return len(states)
