"""Data for the page on a sentence: small pictures of all heads, one pattern, predictions.

One thread runs the model: queries come one after the other, and any can be called off.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.errors import HeadscopeError
from headscope.serve.live import Live, SentencePredictions, SentenceReading
from headscope.views.report.data import pack_picture

MOST_WAITING = 16
"""Queries that may wait: more than a few people would ask at once."""
POLL_SECONDS = 0.05
"""Seconds between two looks whether the asker is still there."""

Pause = Callable[[], None]
_Answer = TypeVar("_Answer")


class GoneError(Exception):
    """Nobody waits for the answer any more."""


class BusyError(HeadscopeError):
    """Too many queries wait already."""


class QueryWorker:
    """Runs one query at a time."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._stops: set[threading.Event] = set()

    @property
    def waiting(self) -> int:
        """Queries that run or wait."""
        return len(self._stops)

    async def answer(
        self,
        query: Callable[[Pause], _Answer],
        is_gone: Callable[[], Awaitable[bool]],
    ) -> _Answer:
        """What a query finds, when its turn has come.

        Args:
            query: what to run; it calls what it is given between its steps, which ends it once
                nobody waits for it.
            is_gone: whether the asker has gone away.

        Raises:
            BusyError: too many wait already.
            GoneError: the asker went away; the thread is free again, or soon.
        """
        if self.waiting >= MOST_WAITING:
            raise BusyError(f"{MOST_WAITING} queries wait already; ask again in a moment")
        stop = threading.Event()

        def pause() -> None:
            if stop.is_set():
                raise GoneError

        def run() -> _Answer:
            pause()
            return query(pause)

        self._stops.add(stop)
        job = self._pool.submit(run)
        job.add_done_callback(lambda _: self._stops.discard(stop))
        waited = asyncio.wrap_future(job)
        try:
            while not (await asyncio.wait([waited], timeout=POLL_SECONDS))[0]:
                if await is_gone():
                    raise GoneError
            return waited.result()
        except CancelledError as error:
            raise GoneError from error
        finally:
            stop.set()
            job.cancel()

    def close(self) -> None:
        """Call off what runs and what waits."""
        for stop in list(self._stops):
            stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)


SIDE = 64
"""Cells of a small picture's side at most; of longer sentences a cell is the largest of several."""


def read_told(live: Live, other: Live | None, text: str, pause: Pause) -> dict[str, Any]:
    """Every head's picture on a sentence, with the loss and the likeliest next tokens.

    Args:
        live: the model.
        other: the one that it is compared with, if there is one.
        text: the sentence.
        pause: called between layers.

    Raises:
        HeadscopeError: see `Live.read`; or the two models do not have the same tokens for it.
    """
    reading = live.read(text, pause)
    answer = {
        "tokens": list(reading.tokens),
        "silent_because": live.silent_because,
        **_pictures(reading),
    }
    if reading.predictions is not None:
        answer |= predictions_told(reading.predictions)
    if other is not None:
        other_reading = _read_other(reading, other, text, pause)
        answer["other"] = _pictures(other_reading) | _loss(other_reading)
        answer["apart"] = _apart(reading, other_reading)
    return answer


def head_told(live: Live, other: Live | None, text: str, head: str, pause: Pause) -> dict[str, Any]:
    """A head's whole pattern on a sentence, a list of keys for each query; six decimals.

    Raises:
        HeadscopeError: as `read_told`; or there is no such head.
    """
    layer, number = live.position(head)
    reading = live.read(text, pause)
    answer = {"head": head, "matrix": _rows(reading, layer, number)}
    if other is not None:
        answer["other"] = _rows(_read_other(reading, other, text, pause), layer, number)
    return answer


def predictions_told(predictions: SentencePredictions) -> dict[str, Any]:
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
    """Square roots, so that what is faint is seen; and what of all attention rests on the first."""
    patterns = reading.patterns.numpy()
    small = np.sqrt(pictures(patterns))
    side = small.shape[-1]
    return {
        "side": side,
        "cells": [pack_picture(picture) for picture in small.reshape(-1, side, side)],
        "sinks": patterns[:, :, 1:, 0].mean(-1).round(4).ravel().tolist(),
    }


def _read_other(reading: SentenceReading, other: Live, text: str, pause: Pause) -> SentenceReading:
    other_reading = other.read(text, pause)
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


def _rows(reading: SentenceReading, layer: int, head: int) -> list[list[float]]:
    pattern = reading.patterns[layer, head].double().numpy().round(6)
    rows: list[list[float]] = pattern.tolist()
    return rows
