"""Heads side by side: work on one is many small steps, which cores share badly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

_Found = TypeVar("_Found")


@contextmanager
def single_steps() -> Iterator[int]:
    """Within, each step of torch has one core; gives how many it had before."""
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield cores
    finally:
        torch.set_num_threads(cores)


def by_head(work: Callable[[int], _Found], heads: int) -> list[_Found]:
    """What the work gives for each head, as many at a time as torch may use cores.

    >>> by_head(lambda head: head * 2, 3)
    [0, 2, 4]
    """

    def alone(head: int) -> _Found:
        with torch.inference_mode():  # each thread has its own mode
            return work(head)

    with single_steps() as cores:
        if cores == 1 or heads == 1:
            return [alone(head) for head in range(heads)]
        return list(_pool(cores).map(alone, range(heads)))


@cache
def _pool(cores: int) -> ThreadPoolExecutor:
    """The same threads for every layer: each new one would keep memory of its own."""
    return ThreadPoolExecutor(cores)
