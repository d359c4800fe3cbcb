"""Data for the page on a sentence: small pictures of all heads, one pattern, predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.serve.live import Live, SentencePredictions
from headscope.views.report.data import pack_picture

KEYS = 6
"""Number of keys of a query whose terms the page shows."""
SIDE = 64
"""Largest side of a small picture in cells; for longer sentences several cells become one."""


def sentence_answer(live: Live, text: str) -> dict[str, Any]:
    """Every head's picture on a sentence, with the loss and the likeliest next tokens.

    Raises:
        HeadscopeError: see `Live.read`.
    """
    reading = live.read(text)
    patterns = reading.patterns.numpy()
    # square roots, so that what is faint is seen
    small = np.sqrt(pictures(patterns))
    side = small.shape[-1]
    answer = {
        "tokens": list(reading.tokens),
        "notes": list(reading.notes),
        "no_ablation_reason": live.no_ablation_reason,
        "side": side,
        "cells": [pack_picture(picture) for picture in small.reshape(-1, side, side)],
        "sinks": patterns[:, :, 1:, 0].mean(-1).round(4).ravel().tolist(),
    }
    if reading.predictions is not None:
        answer |= predictions_answer(reading.predictions)
    return answer


def head_answer(live: Live, text: str, head: str) -> dict[str, Any]:
    """A head's whole pattern on a sentence, a list of keys for each query; six decimals.

    Raises:
        HeadscopeError: see `Live.read`; or there is no such head.
    """
    layer, number = live.head(head)
    row = live.model.attention_layers.index(layer)
    pattern = live.read(text).patterns[row, number].double().numpy()
    return {"head": head, "matrix": pattern.round(6).tolist()}


def explanation_answer(live: Live, text: str, head: str) -> dict[str, Any]:
    """The share of the head's bits that its feature model explains, and keys for each query.

    A key has its position, the feature model's share, and the terms that made it. Keys are the
    `KEYS` of each query with the largest attention or share.

    Raises:
        HeadscopeError: see `Live.explain`.
    """
    # attention and its explanation at the strongest keys of each query
    explanation = live.explain(text, head)
    layer, number = live.head(head)
    row = live.model.attention_layers.index(layer)
    pattern = live.read(text).patterns[row, number].numpy()
    shares = explanation.on_text.shares
    largest = np.argsort(-np.maximum(pattern, shares), axis=1, kind="stable")[:, :KEYS]
    queries = []
    for query, keys in enumerate(largest.tolist()):
        of_query = []
        for key in keys:
            # keys that neither the head nor its feature model attends to say nothing
            share = round(float(shares[query, key]), 6)
            if share > 0 or pattern[query, key] > 0:
                of_query.append([key, share, explanation.on_text.terms_at(query, key)])
        queries.append(of_query)
    return {
        "head": head,
        "explained": round(explanation.fitted.explained.value, 6),
        "queries": queries,
    }


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
