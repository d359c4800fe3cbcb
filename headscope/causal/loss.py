"""The loss of a causal model on windows, as it is or with an intervention: nats per token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.causal.intervention import Intervention
from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.models.families import refuse_encoder, refuse_mixed_heads
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of
from headscope.models.stream import LITTLE_PADDING, batch_tokens_on, in_batches, padded_tokens

LOGIT_CELLS = 2**24
"""Logits that exist at once: 64 MB in single precision, whatever the vocabulary."""
UNEMBEDDING_TOLERANCE = 1e-2
"""Largest difference of logits, which are of the order of 10, that half precision explains."""

Advance = Callable[[int], None]
_checked_networks: WeakSet[nn.Module] = WeakSet()


@dataclass(frozen=True, eq=False)
class TextLoss:
    """The loss of each window of a text: natural logarithms, summed over predicted tokens."""

    nats: Float[ndarray, " window"]
    tokens: Int[ndarray, " window"]
    """Predicted tokens: all but a window's first."""

    @property
    def mean(self) -> float:
        """Nats per predicted token; ln(vocabulary) for a model that knows nothing."""
        return float(self.nats.sum() / self.tokens.sum())


class Predictions(NamedTuple):
    """The positions of a batch at which a token is predicted, window after window."""

    stream: Float[Tensor, "target d_model"]
    """The last residual stream there."""
    labels: Int[Tensor, " target"]
    """The token that follows."""
    lengths: list[int]
    """Number of predictions of each window."""


@torch.inference_mode()
def loss(
    model: Model,
    windows: Sequence[Window],
    intervention: Intervention | None = None,
    *,
    batch_tokens: int | None = None,
    advance: Advance = lambda tokens: None,
) -> TextLoss:
    """The loss of a model on each window.

    Args:
        model: a causal model that runs under the fused engine.
        windows: of two tokens or more each. Neighbours run together, so that windows in the order
            of their lengths, as of `text_windows`, take the least padding.
        intervention: a change of the model; None leaves it as it is.
        batch_tokens: tokens of a forward pass, padding included.
        advance: called with the tokens of each forward pass when it is done.

    Raises:
        ModelError: see `network_of`.
    """
    network = network_of(model)
    size = batch_tokens or batch_tokens_on(model.device)
    nats: list[float] = []
    with nullcontext() if intervention is None else intervention.applied(model):
        for batch in in_batches(windows, size, least=LITTLE_PADDING):
            nats += _window_nats(network, batch)
            advance(sum(map(len, batch)))
    predicted = [len(window) - 1 for window in windows]
    return TextLoss(np.array(nats), np.array(predicted))


def _window_nats(network: Any, batch: Sequence[Window]) -> list[float]:
    """The loss of each window of a batch, summed over its predicted tokens."""
    predictions = predictions_of(network, batch)
    chunks = chunked_losses(network, predictions.stream, predictions.labels)
    losses = torch.cat(list(chunks)).double()
    by_window = torch.split(losses, predictions.lengths)
    return [float(window.sum()) for window in by_window]


def predictions_of(network: Any, windows: Sequence[Window]) -> Predictions:
    """Run windows together; padding is neither predicted nor unembedded."""
    tokens = padded_tokens(windows).to(network.device)
    lengths = [len(window) - 1 for window in windows]
    position = torch.arange(tokens.shape[1] - 1, device=tokens.device)
    counts = torch.tensor(lengths, device=tokens.device)
    is_predicted = position < counts[:, None]
    # position i predicts the token at i + 1
    stream = last_stream(network, tokens)[:, :-1]
    following = tokens[:, 1:]
    return Predictions(
        stream=stream[is_predicted],
        labels=following[is_predicted],
        lengths=lengths,
    )


def last_stream(
    network: Any, tokens: Int[Tensor, "window position"], **options: Any
) -> Float[Tensor, "window position d_model"]:
    """The residual stream that is unembedded, after the last norm."""
    stream: Tensor = network.base_model(tokens, use_cache=False, **options).last_hidden_state
    return stream


def chunked_losses(
    network: Any, stream: Float[Tensor, "target d_model"], labels: Int[Tensor, " target"]
) -> Iterator[Float[Tensor, " some"]]:
    """−ln p of each label, for as many targets at a time as logits may exist at once."""
    unembed = network.get_output_embeddings()
    vocabulary = int(unembed.weight.shape[0])
    rows = max(1, LOGIT_CELLS // vocabulary)
    for start in range(0, len(stream), rows):
        part = slice(start, start + rows)
        logits = unembed(stream[part])
        precision = torch.promote_types(logits.dtype, torch.float32)
        wide_logits = logits.to(precision)
        yield nn.functional.cross_entropy(wide_logits, labels[part], reduction="none")


def network_of(model: Model) -> Any:
    """The plain Hugging Face network of a causal model, whose heads can be changed.

    Raises:
        ModelError: it is an encoder, or runs by another engine, or mixes its heads' outputs before
            W_O, or its logits are more than its last residual stream times the unembedding.
    """
    refuse_encoder(model, "what changes its heads and reads its loss")
    refuse_mixed_heads(model)
    network = plain_network_of(model)
    if network not in _checked_networks:
        _check_unembedding(model.name, network)
        _checked_networks.add(network)
    return network


@torch.inference_mode()
def _check_unembedding(name: str, network: Any) -> None:
    """Refuse models that scale or cap their logits: their loss would be wrong without a word."""
    vocabulary = len(network.get_input_embeddings().weight)
    tokens = torch.arange(8, device=network.device)[None] % vocabulary
    unembed = network.get_output_embeddings()
    stream = last_stream(network, tokens)
    logits = network(tokens, use_cache=False).logits
    apart = float("inf")
    if unembed is not None:
        difference = unembed(stream) - logits
        apart = float(difference.abs().max())
    scale = max(1.0, float(logits.abs().max()))
    if not apart <= UNEMBEDDING_TOLERANCE * scale:
        raise ModelError(
            f"{name}: its logits are not its last residual stream times its unembedding "
            f"(they differ by {apart:.2g}), so that its loss cannot be taken in chunks"
        )
