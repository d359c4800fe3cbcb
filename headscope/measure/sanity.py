"""Whether a model predicts its run's own text better than the frequencies of the tokens do.

A model whose weights, tokenizer or dtype are not what they should be still has attention patterns.
What gives it away is that it predicts no better than a table of token counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import nn

from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.models.layout import looks_both_ways
from headscope.models.load import Model

WINDOWS = 8
"""Windows that are read once more."""
READ = 129
"""Tokens of each that are read, from its beginning: some 1,000 in all."""
ROWS = 64
"""Tokens of each that are predicted: logits of so few rows fit into memory whatever the vocabulary,
and 512 tokens give the mean loss to about 0.15 nats, where unigrams are some nats away."""


MASKED = 0.15
"""Share of a window that is masked at a time, which is what BERT was trained on."""


class Targets(NamedTuple):
    """A window and the places in it whose tokens are to be predicted."""

    tokens: Int[ndarray, " position"]
    places: Int[ndarray, " target"]
    """From 1 on: the first token has nothing before it."""


@dataclass(frozen=True)
class Sanity:
    """The mean loss of a model and of unigrams on the same tokens of the run's text, in nats."""

    model: float
    unigram: float
    tokens: int
    windows: int
    better: int
    """Windows on which the model's mean loss is the smaller one."""

    @property
    def sound(self) -> bool:
        """Whether the model is better than unigrams on average; a loss that is no number is not.

        In built sentences, whose few words are drawn evenly, counts of that very text come near
        the best that can be had, and a good model that never saw it may do worse: the note says on
        how many windows. A model that is broken or was never trained loses everywhere, by nats.
        """
        return self.model < self.unigram

    @property
    def facts(self) -> dict[str, float | None]:
        """What `run.json` says of it."""
        model = round(self.model, 3) if np.isfinite(self.model) else None
        counts = {"tokens": self.tokens, "windows": self.windows, "better": self.better}
        return {"model": model, "unigram": round(self.unigram, 3), **counts}

    @property
    def notes(self) -> list[str]:
        """What the reader of the run must know; nothing of a sound model."""
        if self.sound:
            return []
        return [
            f"{WORSE}: {self.model:.2f} against {self.unigram:.2f} nats per token, better on "
            f"{self.better} of {self.windows} windows; its weights, its tokenizer or its dtype may "
            "be wrong, or it was never trained for such text"
        ]


WORSE = "THIS MODEL PREDICTS THE TEXT WORSE THAN THE FREQUENCIES OF ITS TOKENS DO"


class TokenCounts:
    """Counts the tokens of windows as they pass, and predicts each from all the others."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.tokens = 0
        """Of the windows, the beginning-of-text tokens included."""

    def watch(self, windows: Iterable[Window]) -> Iterator[Window]:
        """The same windows."""
        for window in windows:
            self.counts.update(np.asarray(window.tokens[1 : window.stop]).tolist())
            self.tokens += len(window)
            yield window

    def losses(self, tokens: Int[ndarray, " target"], vocabulary: int) -> Float[ndarray, " target"]:
        """−ln of each counted token's frequency among all other tokens of the text.

        Leave-one-out, or a token that occurs once would be predicted from itself. What was not
        seen gets the share that Witten & Bell 1991 (method C) give it, types / (tokens + types),
        spread evenly over the vocabulary: p = (c + T / V) / (N + T).
        """
        count = np.array([self.counts[int(token)] for token in tokens]) - 1
        others = self.counts.total() - 1
        types = len(self.counts) - (count == 0)
        # of a text of one token nothing is left to count
        weight = np.maximum(others + types, 1)
        known = (count + types / vocabulary) / weight
        return np.asarray(-np.log(np.where(others + types > 0, known, 1 / vocabulary)))


def draw_targets(windows: Sequence[Window], *, seed: int) -> list[Targets]:
    """Some tokens of some windows, each with the same chance in its window."""
    rng = np.random.default_rng(seed)
    usable = [window for window in windows if window.stop > 1]
    chosen = rng.permutation(len(usable))[:WINDOWS]
    drawn = []
    for i in sorted(chosen.tolist()):
        window = usable[i]
        # what comes after says nothing of the tokens before it, unless it is an encoder's
        stop = window.stop if window.both_ways else min(window.stop, READ)
        places = 1 + rng.permutation(stop - 1)[:ROWS]
        tokens = np.asarray(window.tokens)
        drawn.append(Targets(tokens if window.both_ways else tokens[:stop], np.sort(places)))
    return drawn


def sanity(
    counts: TokenCounts,
    windows: Sequence[Window],
    predict: Callable[[Sequence[Targets]], Float[ndarray, " target"]],
    *,
    vocabulary: int,
    seed: int,
) -> tuple[dict[str, Any], list[str]]:
    """What `run.json` says of the loss on the run's own text, and what its reader must know.

    Args:
        counts: of all tokens of the text.
        windows: of the text, to draw from.
        predict: gives the model's loss of each target.
        vocabulary: tokens of the model.
        seed: seeds the draw.
    """
    drawn = draw_targets(windows, seed=seed)
    if not drawn:
        return {}, []
    try:
        losses = predict(drawn)
    except ModelError as error:
        return {}, [f"its loss on the text is not known: {error}"]
    tokens = np.concatenate([each.tokens[each.places] for each in drawn])
    unigram = counts.losses(tokens, vocabulary)
    ends = np.cumsum([len(each.places) for each in drawn])[:-1]
    ahead = np.array([part.mean() for part in np.split(unigram - losses, ends)])
    found = Sanity(
        float(losses.mean()), float(unigram.mean()), len(tokens), len(drawn), int((ahead > 0).sum())
    )
    return {"text_loss": found.facts}, found.notes


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
    try:
        if model.both_ways:
            each = [_masked_losses(model, network, unembed, target) for target in targets]
        else:
            each = [_window_losses(network, unembed, target) for target in targets]
    except RuntimeError as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{model.name} gives no logits: {reason:.200}") from error
    return np.concatenate(each)


def _window_losses(network: Any, unembed: nn.Module, target: Targets) -> Float[ndarray, " target"]:
    # the row at i predicts the token at i + 1
    return _losses(network, unembed, target.tokens, target.places - 1, target.tokens[target.places])


def _masked_losses(
    model: Model, network: Any, unembed: nn.Module, target: Targets
) -> Float[ndarray, " target"]:
    if model.tokenizer.mask is None:
        raise ModelError(f"{model.name}'s tokenizer has no token for what is to be filled in")
    found = np.empty(len(target.places))
    turns = max(1, round(len(target.places) / len(target.tokens) / MASKED))
    for turn in range(turns):
        own = slice(turn, None, turns)
        tokens = target.tokens.copy()
        tokens[target.places[own]] = model.tokenizer.mask
        labels = target.tokens[target.places[own]]
        found[own] = _losses(network, unembed, tokens, target.places[own], labels)
    return found


def _losses(
    network: Any,
    unembed: nn.Module,
    given: Int[ndarray, " position"],
    places: Int[ndarray, " target"],
    expected: Int[ndarray, " target"],
) -> Float[ndarray, " target"]:
    """What the rows at some places give of what is expected there."""
    rows = torch.from_numpy(places)

    def keep(_: nn.Module, states: tuple[Any, ...]) -> tuple[Any, ...]:
        return states[0][:, rows.to(states[0].device)], *states[1:]

    # before the unembedding, so that what a model does to its logits is still done
    hook = unembed.register_forward_pre_hook(keep)
    try:
        tokens = torch.from_numpy(given).long()[None].to(network.device)
        how = {} if looks_both_ways(network.config) else {"use_cache": False}
        logits = network(tokens, **how).logits[0]
    finally:
        hook.remove()
    if len(logits) != len(rows):
        raise RuntimeError("it unembeds more rows than it is asked for")
    labels = torch.from_numpy(expected).long().to(logits.device)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return nn.functional.cross_entropy(logits, labels, reduction="none").double().cpu().numpy()
