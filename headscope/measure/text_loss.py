"""How well a model predicts text: nats per token on windows, and how sure a difference is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.corpus.shipped import asked_corpora
from headscope.errors import CorpusError, ModelError
from headscope.measure.backend import batch_tokens_on
from headscope.measure.batches import Batch, batches
from headscope.measure.bootstrap import interval, resample
from headscope.measure.stimuli import TextWindows
from headscope.models.encoders import refuse_encoder
from headscope.models.engines.fused import FusedEngine
from headscope.models.load import Model

MAX_TOKENS = 8_192
"""Tokens of text by default: about forty windows, each read some dozens of times."""
MAX_LENGTH = 256
LOGIT_CELLS = 2**24
"""Logits that exist at once: 64 MB in single precision, whatever the vocabulary."""
RESAMPLES = 2_000
UNEMBEDDING_TOLERANCE = 1e-2
"""In logits, which are of the order of 10; half precision rounds them by this much."""

Advance = Callable[[int], None]


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


def network_of(model: Model) -> Any:
    """The plain Hugging Face network of a causal model.

    Raises:
        ModelError: it is an encoder, or runs by another engine, or its logits are more than its
            last residual stream times the unembedding.
    """
    refuse_encoder(model, "what changes its heads and reads its loss")
    if not isinstance(model.engine, FusedEngine):
        why = f" ({model.notes[0]})" if model.notes else ""
        raise ModelError(
            f"{model.name}: heads are changed in the plain Hugging Face network, which the fused "
            f"engine has; this model runs under the {model.engine.name} engine{why}"
        )
    network = model.engine.network
    _check_unembedding(model.name, network)
    return network


def text_batches(
    model: Model,
    corpus: str | Path | Sequence[str | Path] = (),
    *,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
) -> list[Batch]:
    """Windows of natural text in batches, those that ship with headscope when none is named.

    Raises:
        CorpusError: a corpus cannot be read, or holds nothing to predict.
    """
    corpora = asked_corpora(corpus)
    text = TextWindows(
        corpora,
        model.tokenizer,
        max_tokens=max_tokens,
        max_length=min(MAX_LENGTH, model.context),
        seed=seed,
    )
    windows = [window for window in text if len(window) > 1]
    if not windows:
        raise CorpusError(f"{', '.join(map(str, corpora))}: no text with a token to predict")
    return list(
        batches(windows, np.zeros(len(windows), int), {}, tokens=batch_tokens_on(model.device))
    )


def token_count(text: Sequence[Batch]) -> int:
    """Tokens of all windows, without padding."""
    return sum(len(window) for batch in text for window in batch.windows)


@torch.inference_mode()
def text_loss(network: Any, text: Sequence[Batch], advance: Advance = lambda _: None) -> TextLoss:
    """The loss of a network, as it stands, on each window, in the order of the batches.

    Args:
        network: a causal language model of transformers.
        text: from `text_batches`.
        advance: told the tokens of each batch when they are done.
    """
    nats, tokens = [], []
    for batch in text:
        hidden, labels, lengths = predictions(network, batch)
        each = torch.cat([losses for _, losses in in_chunks(network, hidden, labels)])
        nats += [float(window.double().sum()) for window in torch.split(each, lengths)]
        tokens += lengths
        advance(token_count([batch]))
    return TextLoss(np.array(nats), np.array(tokens))


def predictions(
    network: Any, batch: Batch
) -> tuple[Float[Tensor, "target d_model"], Int[Tensor, " target"], list[int]]:
    """The last residual stream where a token is predicted, that token, and each window's number.

    Padding is neither predicted nor unembedded.
    """
    tokens = batch.tokens().to(network.device)
    lengths = [len(window) - 1 for window in batch.windows]
    real = torch.arange(tokens.shape[1] - 1) < torch.tensor(lengths)[:, None]
    real = real.to(tokens.device)
    hidden = network.base_model(tokens, use_cache=False).last_hidden_state
    # position i predicts the token at i + 1
    return hidden[:, :-1][real], tokens[:, 1:][real], lengths


def in_chunks(
    network: Any, hidden: Float[Tensor, "target d_model"], labels: Int[Tensor, " target"]
) -> Iterator[tuple[slice, Float[Tensor, " some"]]]:
    """The loss of each target, as many at a time as logits may exist at once."""
    unembed = network.get_output_embeddings()
    rows = max(1, LOGIT_CELLS // int(unembed.weight.shape[0]))
    for start in range(0, len(hidden), rows):
        part = slice(start, start + rows)
        logits = unembed(hidden[part])
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        yield part, nn.functional.cross_entropy(logits, labels[part], reduction="none")


def rise(after: TextLoss, before: TextLoss, *, seed: int = 0) -> tuple[float, float, float]:
    """By how many nats per token the loss is higher, with its 95 % interval.

    Windows are drawn with replacement and both losses are taken on the same draw (a paired
    percentile bootstrap); the bounds are NaN for a single window, which cannot be resampled.
    """
    difference, windows = after.nats - before.nats, len(before.tokens)
    value = float(difference.sum() / before.tokens.sum())
    draws = resample(windows, np.random.default_rng(seed), times=RESAMPLES)
    low, high = interval(difference, before.tokens, draws)
    return value, float(low), float(high)


@torch.inference_mode()
def _check_unembedding(name: str, network: Any) -> None:
    """Some models scale or cap their logits; their loss would be wrong without a word."""
    vocabulary = len(network.get_input_embeddings().weight)
    tokens = torch.arange(8, device=network.device)[None] % vocabulary
    unembed = network.get_output_embeddings()
    hidden = network.base_model(tokens, use_cache=False).last_hidden_state
    own = network(tokens, use_cache=False).logits
    apart = float("inf") if unembed is None else float((unembed(hidden) - own).abs().max())
    if not apart <= UNEMBEDDING_TOLERANCE * max(1.0, float(own.abs().max())):
        raise ModelError(
            f"{name}: its logits are not its last residual stream times its unembedding "
            f"(they differ by {apart:.2g}), so that its loss cannot be taken in chunks"
        )
