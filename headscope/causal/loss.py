"""The loss of a causal model on windows, as it is or with an intervention: nats per token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.attention_kind import CAUSAL
from headscope.causal.intervention import Intervention
from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.models.families import refuse_encoder, refuse_mixed_heads
from headscope.models.layout.dimensions import attention_kind
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of
from headscope.models.stream import LITTLE_PADDING, batch_tokens_on, in_batches, padded_tokens

LOGIT_CELLS = 2**24
"""Logits that exist at once: 64 MB in single precision, whatever the vocabulary."""
UNEMBEDDING_TOLERANCE = 1e-2
"""Largest difference of logits, as a share of the largest, that half precision explains."""
PROBED_LOGITS = (30.0, 1000.0)
"""Largest logits at which a network's own are compared: caps are 30 in Gemma, 15 in nanochat."""
LARGEST_STATE = 1e4
"""Largest state of such a comparison, which half precision can hold."""
SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier")
"""Names of a scale of logits in configurations; some models multiply by it, others divide."""

Advance = Callable[[int], None]
_logit_maps: WeakKeyDictionary[nn.Module, LogitMap] = WeakKeyDictionary()


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
    # windows of similar length run together, so that little of a batch is padding
    with nullcontext() if intervention is None else intervention.applied(model):
        for batch in in_batches(windows, size, least=LITTLE_PADDING):
            predictions = predictions_of(network, batch)
            chunks = chunked_losses(network, predictions.stream, predictions.labels)
            losses = torch.cat(list(chunks)).double()
            by_window = torch.split(losses, predictions.lengths)
            nats += [float(window.sum()) for window in by_window]
            advance(sum(map(len, batch)))
    predicted = [len(window) - 1 for window in windows]
    return TextLoss(np.array(nats), np.array(predicted))


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
    vocabulary = int(network.get_output_embeddings().weight.shape[0])
    rows = max(1, LOGIT_CELLS // vocabulary)
    for start in range(0, len(stream), rows):
        part = slice(start, start + rows)
        logits = logits_of(network, stream[part])
        precision = torch.promote_types(logits.dtype, torch.float32)
        wide_logits = logits.to(precision)
        yield nn.functional.cross_entropy(wide_logits, labels[part], reduction="none")


def network_of(model: Model) -> Any:
    """The plain Hugging Face network of a causal model, whose heads can be changed.

    Raises:
        ModelError: it is an encoder, or runs by another engine, or mixes its heads' outputs before
            W_O, or `logit_map` does not know how its logits come from its last residual stream.
    """
    refuse_encoder(model, "what changes its heads and reads its loss")
    refuse_mixed_heads(model)
    network = plain_network_of(model)
    check_logits(model.name, network)
    return network


def check_logits(name: str, network: Any) -> None:
    """Refuse a network whose logits `logits_of` cannot compute: they would be wrong silently.

    Raises:
        ModelError: see `logit_map`.
    """
    try:
        logit_map(network)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error


@dataclass(frozen=True)
class LogitMap:
    """Map of the unembedded stream u to logits: c · tanh(s · u / c), or s · u."""

    scale: float = 1.0
    """The factor s; Cohere multiplies by it, Granite and MiniCPM divide."""
    cap: float | None = None
    """The cap c of Gemma 2; None for no cap."""

    def logits(self, unembedded: Float[Tensor, "*_ token"]) -> Float[Tensor, "*_ token"]:
        """The logits of an unembedded stream, in its precision."""
        logits = unembedded if self.scale == 1 else unembedded * self.scale
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap


def logits_of(
    network: Any, states: Float[Tensor, "*_ d_model"], tokens: list[int] | None = None
) -> Float[Tensor, "*_ token"]:
    """The logits of states that stand before the unembedding: biased, scaled and capped.

    Args:
        network: a network whose unembedding `logit_map` knows.
        states: the stream after the last norm; of an encoder the input of its unembedding.
        tokens: those whose logits are computed. Default: the vocabulary.
    """
    unembed = network.get_output_embeddings()
    if tokens is None:
        unembedded = unembed(states)
    else:
        bias = getattr(unembed, "bias", None)
        own_bias = None if bias is None else bias[tokens]
        unembedded = nn.functional.linear(states, unembed.weight[tokens], own_bias)
    return logit_map(network).logits(unembedded)


def log_probabilities(
    network: Any, states: Float[Tensor, "*_ d_model"]
) -> Float[Tensor, "*_ token"]:
    """The log-probability of every token of the vocabulary at states, in single precision."""
    return logits_of(network, states).float().log_softmax(-1)


def divergence(
    before: Float[Tensor, "*_ token"], after: Float[Tensor, "*_ token"]
) -> Float[Tensor, "*_"]:
    """KL of the distributions after a change from those before it, in nats.

    Both are log-probabilities. Rounding alone would give some values below 0, which are 0.
    """
    nats = (before.exp() * (before - after)).sum(-1)
    return nats.clamp_min(0)


def at_labels(
    logs: Float[Tensor, "place token"], label: Int[Tensor, " place"]
) -> Float[Tensor, " place"]:
    """The log-probability of each place's label."""
    return logs.gather(-1, label[:, None])[:, 0]


def logit_map(network: Any) -> LogitMap:
    """The scale and the cap by which a network's own logits come from its unembedded stream.

    Raises:
        ModelError: it has no unembedding, or does something else with its logits.
    """
    if network not in _logit_maps:
        _logit_maps[network] = _found_logit_map(network)
    return _logit_maps[network]


@torch.inference_mode()
def _found_logit_map(network: Any) -> LogitMap:
    """The map that the configuration names and the network's own logits confirm."""
    unembed = network.get_output_embeddings()
    if unembed is None:
        raise ModelError("it has no unembedding, so that there are no logits to read")
    # a short run shows the network's own logits, and any tokens will do
    tokens = torch.arange(8, device=network.device)[None] % len(
        network.get_input_embeddings().weight
    )
    is_causal = attention_kind(network.config) == CAUSAL
    options = {"use_cache": False} if is_causal else {}
    seen: list[Tensor] = []

    def own_logits(factor: float) -> Tensor:
        """The network's logits with the unembedding's input multiplied."""

        def multiply(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            seen.append(inputs[0])
            return (inputs[0] * factor, *inputs[1:])

        with unembed.register_forward_pre_hook(multiply):
            logits: Tensor = network(tokens, **options).logits
        return logits.float()

    # a decoder's states are read before what stands between them and the unembedding (MiniCPM)
    natural = own_logits(1.0)
    states = last_stream(network, tokens) if is_causal else seen[-1]

    # weak logits show no cap: states are multiplied until the largest logits would be so large
    largest = float(unembed(states).abs().max())
    longest = float(states.abs().max())
    factors = [1.0]
    for level in PROBED_LOGITS:
        if largest > 0:
            factors.append(min(level / largest, LARGEST_STATE / longest))
    probes = [(states * factor, own_logits(factor)) for factor in factors]

    # the configuration names the scale and the cap, but not which way a scale is used: all
    # combinations are compared with the logits
    config = network.config.get_text_config(decoder=is_causal)
    caps = dict.fromkeys([None, getattr(config, "final_logit_softcapping", None)])
    scales = [1.0]
    for name in SCALES:
        scale = getattr(config, name, None)
        if scale:
            scales += [float(scale), 1 / float(scale)]

    def difference(candidate: LogitMap) -> float:
        """The largest difference from the network's logits, as a share of these."""
        shares = []
        for probed, logits in probes:
            computed = candidate.logits(unembed(probed)).float()
            largest_error = (computed - logits).abs().max()
            shares.append(float(largest_error / logits.abs().max().clamp_min(1)))
        return float(np.nan_to_num(shares, nan=np.inf, posinf=np.inf).max())

    # the nearest must also be near, or the logits come about in another way
    candidates = [LogitMap(scale, cap) for scale in scales for cap in caps]
    closest = min(candidates, key=difference)
    apart = difference(closest)
    if not apart <= UNEMBEDDING_TOLERANCE:
        raise ModelError(
            "its logits are not its last residual stream times its unembedding, with the scale and "
            f"the cap of its configuration (they differ by {apart:.2g} of the largest, which is "
            f"{float(natural.abs().max()):.3g}), so that they cannot be computed from it"
        )
    return closest
