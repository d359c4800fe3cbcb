"""One thread that runs the model: queries come one after the other, and any can be called off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TypeVar

from headscope.errors import HeadscopeError

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
