"""An end to the retries of the hub's own client, which waits as long as a server asks it to.

By itself `huggingface_hub` sleeps an hour where a server says `Retry-After: 3600`, asks some
questions without a time limit, and tries others for minutes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub import constants, set_client_factory
from huggingface_hub.utils import _http

TIMEOUT = 5.0
"""Seconds to wait for a connection, and for the hub's next byte unless HF_HUB_DOWNLOAD_TIMEOUT is
more."""
PATIENCE = 10.0
"""Seconds after which what failed is tried no more."""
_XET = {
    "HF_XET_CLIENT_CONNECT_TIMEOUT": "5s",
    "HF_XET_CLIENT_RETRY_BASE_DELAY": "1s",
    "HF_XET_CLIENT_RETRY_MAX_DURATION": "10s",
}
"""The same limits for Xet, the storage of large files, whose client is a program of its own."""
_BUSY = (408, 429, 500, 502, 503, 504)
"""Answers after which the client asks again."""


class GaveUpError(Exception):
    """The hub was asked often enough; the message says what it answers, to follow its name."""


@contextmanager
def bounded_retries() -> Iterator[None]:
    """Within this context the hub's client gives up when `PATIENCE` is over.

    What goes on to arrive may take any time, and may break off any number of times.

    Raises:
        GaveUpError: from within the client.
    """
    # a user's own client, with proxies and certificates, is kept; there is no public way to read it
    previous = getattr(_http, "_GLOBAL_CLIENT_FACTORY", None)
    if previous is None:
        yield
        return
    retries, environment = _Retries(), dict(os.environ)

    def client_factory() -> Any:
        client = previous()
        client.event_hooks["request"].append(retries.before)
        client.event_hooks["response"].append(retries.after)
        return client

    set_client_factory(client_factory)
    os.environ.update(_XET | environment)  # which it reads when it is first used
    try:
        yield
    finally:
        for variable in _XET.keys() - environment.keys():
            os.environ.pop(variable, None)
        set_client_factory(previous)


def answer_of(response: Any) -> str:
    """What a response says, to follow the hub's name; with the wait that it asks for."""
    seconds = _wait_asked(response)
    wait = "" if seconds is None else f" and asks to wait {seconds} seconds"
    return f"answers {response.status_code} {response.reason_phrase}{wait}"


class _Retries:
    """Requests by method, address and range: when each was first sent, and how often."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str], float] = {}
        self._count: dict[tuple[str, str, str], int] = {}

    def before(self, request: Any) -> None:
        """Set a time limit, and refuse what has been tried in vain."""
        next_byte = max(TIMEOUT, constants.HF_HUB_DOWNLOAD_TIMEOUT)
        limits = {"connect": TIMEOUT, "read": next_byte, "write": next_byte, "pool": None}
        request.extensions["timeout"] = limits
        key = _key(request)
        elapsed = self._elapsed(key)
        self._count[key] = self._count.get(key, 0) + 1
        # a chunk may take long to come, and be lost: once is no reason to give up
        if self._count[key] > 2 and elapsed > PATIENCE:
            raise GaveUpError("sends nothing more")

    def after(self, response: Any) -> None:
        """Refuse a wait that would outlast the patience."""
        if response.status_code not in _BUSY:
            return
        elapsed = self._elapsed(_key(response.request))
        seconds = _wait_asked(response)
        # unasked, the client waits twice as long each time, from a second on
        if elapsed + (elapsed + 1 if seconds is None else seconds) > PATIENCE:
            raise GaveUpError(answer_of(response))

    def _elapsed(self, key: tuple[str, str, str]) -> float:
        now = time.monotonic()
        return now - self._first.setdefault(key, now)


def _key(request: Any) -> tuple[str, str, str]:
    return request.method, str(request.url), request.headers.get("Range", "")


def _wait_asked(response: Any) -> int | None:
    """Seconds by `Retry-After`, or by the hub's own `RateLimit: "api";r=0;t=SECONDS`."""
    limit = re.search(r"\br=0\b.*\bt=(\d+)", response.headers.get("RateLimit", ""))
    seconds = limit[1] if limit else response.headers.get("Retry-After", "").strip()
    return int(seconds) if re.fullmatch(r"\d{1,9}", seconds) else None
