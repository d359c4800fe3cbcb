"""Work done ahead, on another thread, while its last result is being used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_END = object()


def prefetched(items: Iterator[T]) -> Iterator[T]:
    """The same items, each made while the one before it is used; errors come out in their place."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, items, _END)
            yield item  # type: ignore[misc]
