"""A check that a model predicts its run's text better than the frequencies of the tokens do.

A model whose weights, tokenizer or dtype are not what they should be still has attention patterns.
What gives it away is that it predicts no better than a table of token counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.attention_kind import CAUSAL
from headscope.corpus.window import Window
from headscope.errors import ModelError, reported_as
from headscope.models.layout.dimensions import attention_kind
from headscope.models.model import Model

WINDOWS = 8
"""Windows that are read once more."""
ROWS = 64
"""Tokens of each window that are predicted; in causal models the first ones. Logits of so few rows
fit into memory for any vocabulary. The standard error of the mean loss over 512 tokens is about
0.15 nats, and the unigram model is some nats away."""


MASKED = 0.15
"""Share of a window that is masked at a time, which is what BERT was trained on."""


class Targets(NamedTuple):
    """A window and the places in it whose tokens are to be predicted."""

    tokens: Int[ndarray, " position"]
    places: Int[ndarray, " target"]
    """Positions from 1 on: the first token has nothing before it."""


WORSE = "THIS MODEL PREDICTS THE TEXT WORSE THAN THE FREQUENCIES OF ITS TOKENS DO"


class TokenCounts:
    """Counts the tokens of windows, and predicts each from all the others."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.tokens = 0
        """Tokens of the windows, the beginning-of-text tokens included."""
        self.windows = 0

    def add(self, window: Window) -> None:
        """Count the tokens of a window's text."""
        text = np.asarray(window.tokens[window.begins : window.stop])
        self.counts.update(text.tolist())
        self.tokens += len(window)
        self.windows += 1

    def losses(self, tokens: Int[ndarray, " target"], vocabulary: int) -> Float[ndarray, " target"]:
        """−ln of each counted token's frequency among all other tokens of the text.

        Leave-one-out, or a token that occurs once would be predicted from itself. What was not
        seen gets the share that Witten & Bell 1991 (method C) give it, types / (tokens + types),
        spread evenly over the vocabulary: p = (c + T / V) / (N + T).
        """
        counts = [self.counts[int(token)] for token in tokens]
        other_copies = np.array(counts) - 1
        others = self.counts.total() - 1
        types = len(self.counts) - (other_copies == 0)
        even = 1 / vocabulary
        # of a text of one token nothing is left to count
        weight = np.maximum(others + types, 1)
        known = (other_copies + types / vocabulary) / weight
        frequency = np.where(others + types > 0, known, even)
        return np.asarray(-np.log(frequency))


def draw_targets(windows: Sequence[Window], *, seed: int) -> list[Targets]:
    """Some tokens of some windows: in causal models the first ones, else drawn."""
    # windows that hold text, some of them drawn
    rng = np.random.default_rng(seed)
    usable = [window for window in windows if window.stop > window.begins]
    order = rng.permutation(len(usable))[:WINDOWS]
    targets = []
    for i in sorted(order.tolist()):
        window = usable[i]
        tokens = np.asarray(window.tokens)
        places = np.arange(window.begins, window.stop)
        if window.attention_kind.sees_future:
            places = np.sort(rng.permutation(places)[:ROWS])
        else:  # tokens after the last of them are not read
            places = places[:ROWS]
            tokens = tokens[: places[-1] + 1]
        targets.append(Targets(tokens, places))
    return targets


@dataclass(frozen=True)
class LossCheck:
    """A model's loss on a text beside that of token frequencies."""

    record: dict[str, float | None] | None
    """`text_loss` of `run.json`; None if it is not known."""
    notes: Sequence[str] = ()
    """Notes for the reader."""


def check_loss(
    counts: TokenCounts,
    windows: Sequence[Window],
    predict: Callable[[Sequence[Targets]], Float[ndarray, " target"]],
    *,
    vocabulary: int,
    seed: int,
) -> LossCheck:
    """Compare the model's loss on some windows with that of a table of token counts."""
    # the model's loss on drawn tokens; without one, a note says why
    targets = draw_targets(windows, seed=seed)
    if not targets:
        return LossCheck(None)
    try:
        losses = predict(targets)
    except ModelError as error:
        return LossCheck(None, [f"its loss on the text is not known: {error}"])
    # the same tokens, predicted by their frequencies in the whole text
    tokens = np.concatenate([target.tokens[target.places] for target in targets])
    unigram = counts.losses(tokens, vocabulary)
    ends = np.cumsum([len(target.places) for target in targets])
    gains = np.split(unigram - losses, ends[:-1])
    better = sum(bool(gain.mean() > 0) for gain in gains)
    model_mean = float(losses.mean())
    unigram_mean = float(unigram.mean())
    record = {
        "model": round(model_mean, 3) if np.isfinite(model_mean) else None,
        "unigram": round(unigram_mean, 3),
        "tokens": len(tokens),
        "windows": len(targets),
        "better": better,
    }
    # In synthetic sentences, whose few words are drawn evenly, counts of that very text come near
    # the best that can be had: how many windows are better tells a good model from a broken one.
    if model_mean < unigram_mean:
        return LossCheck(record)
    note = (
        f"{WORSE}: {model_mean:.2f} against {unigram_mean:.2f} nats per token, better on "
        f"{better:,} of {len(targets):,} windows; its weights, its tokenizer or its dtype may be "
        "wrong, or it was never trained for such text"
    )
    return LossCheck(record, [note])


@torch.inference_mode()
def token_losses(model: Model, targets: Sequence[Targets]) -> Float[ndarray, " target"]:
    """The model's loss of each target, in nats; only their rows are unembedded.

    An encoder fills in the targets, masked some at a time (Devlin et al. 2019, 3.1).

    Raises:
        ModelError: the model has no unembedding, or cannot be asked for some of its logits.
    """
    network = getattr(model.engine, "network", None) or model.bridge.original_model
    unembed = network.get_output_embeddings()
    if unembed is None:
        raise ModelError(f"{model.name} has no unembedding")
    with reported_as(ModelError, f"{model.name} gives no logits", RuntimeError):
        if model.attention_kind.predicts_next:
            # the row at i predicts the token at i + 1
            losses = [
                _losses(network, unembed, tokens, places - 1, tokens[places])
                for tokens, places in targets
            ]
        else:
            # an encoder sees all of its input, so what it is to predict must be masked
            if model.tokenizer.mask is None:
                lack = "has no token for what is to be filled in"
                raise ModelError(f"{model.name}'s tokenizer {lack}")
            losses = []
            for sequence, places in targets:
                of_window = np.empty(len(places))
                # some at a time, as a model that was trained with few masks needs the rest
                shares = max(1, round(len(places) / len(sequence) / MASKED))
                for share in range(shares):
                    masked = slice(share, None, shares)
                    hidden = places[masked]
                    tokens = sequence.copy()
                    tokens[hidden] = model.tokenizer.mask
                    labels = sequence[hidden]
                    of_window[masked] = _losses(network, unembed, tokens, hidden, labels)
                losses.append(of_window)
    return np.concatenate(losses)


def _losses(
    network: Any,
    unembed: nn.Module,
    sequence: Int[ndarray, " position"],
    places: Int[ndarray, " target"],
    expected: Int[ndarray, " target"],
) -> Float[ndarray, " target"]:
    rows = torch.from_numpy(places)

    def select_rows(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        states = inputs[0]
        return states[:, rows.to(states.device)]

    # before the unembedding, so that what a model does to its logits is still done
    hook = unembed.register_forward_pre_hook(select_rows)
    try:
        tokens = torch.from_numpy(sequence).long()[None].to(network.device)
        options = {"use_cache": False} if attention_kind(network.config) == CAUSAL else {}
        logits = network(tokens, **options).logits[0]
    finally:
        hook.remove()
    # some models unembed all rows whatever reaches the unembedding
    if len(logits) != len(rows):
        raise RuntimeError("it unembeds more rows than it is asked for")
    labels = torch.from_numpy(expected).long().to(logits.device)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return nn.functional.cross_entropy(logits, labels, reduction="none").double().cpu().numpy()
