"""Windows of text on which losses are taken, and how sure a rise of the loss is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.bootstrap import interval, resample
from headscope.models.load import Model
from headscope.models.loss import TextLoss
from headscope.stimuli.text import TextWindows

MAX_TOKENS = 8_192
"""Tokens of text by default: about forty windows, each read some dozens of times."""
MAX_LENGTH = 256
RESAMPLES = 2_000


def text_windows(
    model: Model,
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
) -> list[Window]:
    """Windows of natural text, the longest first; text that ships with headscope by default.

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
    return sorted(windows, key=len, reverse=True)


def token_count(windows: Sequence[Window]) -> int:
    """Tokens of all windows, without padding."""
    return sum(map(len, windows))


def rise(after: TextLoss, before: TextLoss, *, seed: int = 0) -> tuple[float, float, float]:
    """The difference of two losses in nats per token, with its 95 % interval.

    Windows are drawn with replacement and both losses are taken on the same draw (a paired
    percentile bootstrap); the bounds are NaN for a single window, which cannot be resampled.
    """
    difference, windows = after.nats - before.nats, len(before.tokens)
    value = float(difference.sum() / before.tokens.sum())
    draws = resample(windows, np.random.default_rng(seed), times=RESAMPLES)
    low, high = interval(difference, before.tokens, draws)
    return value, float(low), float(high)
