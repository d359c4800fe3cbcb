"""Data for the page on a sentence: small pictures of all heads, one pattern, predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.errors import HeadscopeError
from headscope.serve.live import Live, SentencePredictions, SentenceReading
from headscope.views.report.data import pack_picture

SIDE = 64
"""Largest side of a small picture in cells; for longer sentences several cells become one."""


def sentence_answer(live: Live, other: Live | None, text: str) -> dict[str, Any]:
    """Every head's picture on a sentence, with the loss and the likeliest next tokens.

    Args:
        live: the model.
        other: the one that it is compared with, if there is one.
        text: the sentence.

    Raises:
        HeadscopeError: see `Live.read`; or the two models do not have the same tokens for it.
    """
    reading = live.read(text)
    answer = {
        "tokens": list(reading.tokens),
        "no_ablation_reason": live.no_ablation_reason,
        **_pictures(reading),
    }
    if reading.predictions is not None:
        answer |= predictions_answer(reading.predictions)
    if other is not None:
        other_reading = _read_other(reading, other, text)
        answer["other"] = _pictures(other_reading) | _loss(other_reading)
        answer["apart"] = _apart(reading, other_reading)
    return answer


def head_answer(live: Live, other: Live | None, text: str, head: str) -> dict[str, Any]:
    """A head's whole pattern on a sentence, a list of keys for each query; six decimals.

    Raises:
        HeadscopeError: as `sentence_answer`; or there is no such head.
    """
    layer, number = live.head(head)
    row = live.model.attention_layers.index(layer)
    reading = live.read(text)
    answer = {"head": head, "matrix": _rows(reading, row, number)}
    if other is not None:
        answer["other"] = _rows(_read_other(reading, other, text), row, number)
    return answer


def predictions_answer(predictions: SentencePredictions) -> dict[str, Any]:
    """The loss of each token and its mean in nats, and the likeliest next tokens."""
    losses = predictions.losses
    return {
        "losses": losses.round(6).tolist(),
        "loss": float(losses.mean()),
        "best": [[[word, round(p, 6)] for word, p in row] for row in predictions.best],
    }


def pictures(
    patterns: Float[ndarray, "layer head query key"],
) -> Float[ndarray, "layer head side side"]:
    """Patterns without the first token's row and column, `SIDE` cells wide at most.

    >>> pictures(np.eye(4)[None, None]).shape
    (1, 1, 3, 3)
    """
    inner = patterns[..., 1:, 1:]
    size = inner.shape[-1]
    if size <= SIDE:
        return inner
    starts = np.unique(np.arange(SIDE) * size // SIDE)
    rows = np.maximum.reduceat(inner, starts, axis=-2)
    return np.asarray(np.maximum.reduceat(rows, starts, axis=-1))


def _pictures(reading: SentenceReading) -> dict[str, Any]:
    """Square roots, so that what is faint is seen; and the share of all attention on the first."""
    patterns = reading.patterns.numpy()
    small = np.sqrt(pictures(patterns))
    side = small.shape[-1]
    return {
        "side": side,
        "cells": [pack_picture(picture) for picture in small.reshape(-1, side, side)],
        "sinks": patterns[:, :, 1:, 0].mean(-1).round(4).ravel().tolist(),
    }


def _read_other(reading: SentenceReading, other: Live, text: str) -> SentenceReading:
    other_reading = other.read(text)
    if other_reading.tokens != reading.tokens:
        raise HeadscopeError(
            f"the two models read this text as other tokens ({len(reading.tokens)} and "
            f"{len(other_reading.tokens)}): their patterns cannot be laid on each other"
        )
    return other_reading


def _apart(one: SentenceReading, two: SentenceReading) -> list[float]:
    """Attention of each head that lies elsewhere: half the sum of differences, 0 to 1."""
    gap = (one.patterns - two.patterns).abs().sum(-1)[..., 1:].mean(-1) / 2
    distances: list[float] = gap.flatten().double().numpy().round(4).tolist()
    return distances


def _loss(reading: SentenceReading) -> dict[str, float]:
    predictions = reading.predictions
    return {} if predictions is None else {"loss": float(predictions.losses.mean())}


def _rows(reading: SentenceReading, row: int, head: int) -> list[list[float]]:
    pattern = reading.patterns[row, head].double().numpy().round(6)
    rows: list[list[float]] = pattern.tolist()
    return rows
