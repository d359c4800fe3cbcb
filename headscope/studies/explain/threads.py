"""Heads side by side: work on one is many small steps, which cores share badly."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import torch

_Result = TypeVar("_Result")


def map_heads(work: Callable[[int], _Result], heads: int) -> list[_Result]:
    """Results of the work for each head, as many at a time as torch may use cores.

    Meanwhile a step of torch has one core.

    >>> map_heads(lambda head: head * 2, 3)
    [0, 2, 4]
    """

    def alone(head: int) -> _Result:
        with torch.inference_mode():  # each thread has its own mode
            return work(head)

    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if cores == 1 or heads == 1:
            return [alone(head) for head in range(heads)]
        return list(_pool(cores).map(alone, range(heads)))
    finally:
        torch.set_num_threads(cores)


@cache
def _pool(cores: int) -> ThreadPoolExecutor:
    """The same threads for every layer: each new one would keep memory of its own."""
    return ThreadPoolExecutor(cores)
