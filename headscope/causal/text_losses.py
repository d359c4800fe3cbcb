"""The loss of a model on windows under many changes, each from the first layer that it changes.

Layers below a change give what they give in the untouched model. Their output is kept for a batch
of windows, so that a change of one layer costs half of a forward pass on average.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from headscope.causal.intervention import Intervention
from headscope.causal.loss import Advance, TextLoss
from headscope.causal.rerun import Rerunner, Score, TokenRows
from headscope.corpus.window import Window
from headscope.models.model import Model
from headscope.models.stream import LITTLE_PADDING, batch_tokens_on, in_batches, padded_tokens

_Name = TypeVar("_Name", bound=Hashable)


@dataclass(frozen=True, eq=False)
class TextLosses(Generic[_Name]):
    """Losses on the same windows."""

    unchanged: TextLoss
    """Losses with the base alone, if there is one."""
    changed: Mapping[_Name, TextLoss]
    """Losses with each change, and the base."""


def text_losses(
    model: Model,
    windows: Sequence[Window],
    changes: Mapping[_Name, Intervention],
    *,
    base: Intervention | None = None,
    advance: Advance = lambda tokens: None,
) -> TextLosses[_Name]:
    """The loss of a model on each window, untouched and under each change.

    The loss of a causal model is in nats per predicted token. That of an encoder is the distance of
    each last state from the untouched model's, divided by the length of the latter.

    Args:
        model: of the fused engine.
        windows: of two tokens or more each.
        changes: changes by name, each made alone.
        base: a change that is made in addition to each of them.
        advance: called with the tokens of each forward pass when it is done.

    Raises:
        ModelError: see `Rerunner`.
    """
    return text_losses_by_batch(model, windows, lambda batch: changes, base=base, advance=advance)


@torch.inference_mode()
def text_losses_by_batch(
    model: Model,
    windows: Sequence[Window],
    changes_of: Callable[[Sequence[Window]], Mapping[_Name, Intervention]],
    *,
    base: Intervention | None = None,
    advance: Advance = lambda tokens: None,
) -> TextLosses[_Name]:
    """The losses of `text_losses` under changes that depend on the windows.

    Args:
        model: see `text_losses`.
        windows: see `text_losses`.
        changes_of: makes the changes for windows that run together, under the same names for all.
        base: see `text_losses`.
        advance: see `text_losses`.

    Raises:
        ModelError: see `Rerunner`.
    """
    rerunner = Rerunner(model, loss_score(model))
    unchanged: list[float] = []
    changed: dict[_Name, list[float]] = {}
    size = batch_tokens_on(model.device)
    for batch in in_batches(windows, size, least=LITTLE_PADDING):
        rows = scored_rows(batch, rerunner.score, model.device)
        # scores come place by place, and are summed over each window
        counts = _counts(batch, rerunner.score)
        tokens = sum(map(len, batch))
        # changes are made to the run as it is, or to that under `base`
        untouched = rerunner.clean(rows)
        advance(tokens)
        with nullcontext() if base is None else base.applied(model):
            start = untouched if base is None else rerunner.clean(rows)
            unchanged += _sums(rerunner.scores(start, untouched=untouched), counts)
            for name, change in changes_of(batch).items():
                scores = rerunner.scores(start, change, untouched=untouched)
                losses = changed.setdefault(name, [])
                losses += _sums(scores, counts)
                advance(tokens)
    scored = np.array(_counts(windows, rerunner.score))
    return TextLosses(
        unchanged=TextLoss(np.array(unchanged), scored),
        changed={name: TextLoss(np.array(losses), scored) for name, losses in changed.items()},
    )


def loss_score(model: Model) -> Score:
    """The score whose negative is the loss."""
    return Score.NEXT if model.attention_kind.predicts_next else Score.STATE


def scored_rows(windows: Sequence[Window], score: Score, device: str) -> TokenRows:
    """Windows as rows; each token but the first is scored, or each token of an encoder."""
    first = int(score is Score.NEXT)
    lengths = torch.tensor([len(window) for window in windows])
    rows = torch.arange(len(windows)).repeat_interleave(lengths - first)
    positions = [torch.arange(first, len(window)) for window in windows]
    return TokenRows(
        tokens=padded_tokens(windows).to(device),
        lengths=lengths.to(device),
        row=rows.to(device),
        position=torch.cat(positions).to(device),
    )


def _counts(windows: Sequence[Window], score: Score) -> list[int]:
    """Scored tokens of each window."""
    return [len(window) - int(score is Score.NEXT) for window in windows]


def _sums(scores: Tensor, counts: list[int]) -> list[float]:
    """The loss of each window, summed over its tokens."""
    return [float(-window.double().sum()) for window in torch.split(scores, counts)]
