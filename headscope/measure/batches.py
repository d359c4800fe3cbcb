"""Windows that run together.

Batches that do not fit into memory are read in halves, and what was freed goes back.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.models.batching import padded_tokens


@dataclass(frozen=True, eq=False)
class Batch:
    """Windows that run together, right-padded, each with its block."""

    windows: Sequence[Window]
    blocks: Int[ndarray, " window"]
    profiled: Mapping[int, int]
    """Rows whose head profile is taken, each with its place among the profiled windows."""

    def tokens(self) -> Int[Tensor, "window position"]:
        """Token ids, padded on the right with the beginning-of-text token.

        An encoder's with −1: its padding must be hidden; so must that of a source with its target.
        """
        return padded_tokens(self.windows)

    def halves(self) -> tuple[Batch, Batch]:
        """Its first and its second half of windows."""
        middle = len(self.windows) // 2
        return (
            Batch(
                self.windows[:middle],
                self.blocks[:middle],
                {row: at for row, at in self.profiled.items() if row < middle},
            ),
            Batch(
                self.windows[middle:],
                self.blocks[middle:],
                {row - middle: at for row, at in self.profiled.items() if row >= middle},
            ),
        )


def batches(
    windows: Sequence[Window],
    blocks: Int[ndarray, " window"],
    profiled: Mapping[int, int],
    *,
    tokens: int,
) -> Iterator[Batch]:
    """Batches of about `tokens` tokens each, padding included, the longest windows first.

    Windows with other rotary frequencies run apart.
    """
    order = sorted(range(len(windows)), key=lambda i: -len(windows[i]))
    start = 0
    while start < len(order):
        longest = windows[order[start]]
        rows = order[start : start + max(1, tokens // len(longest))]
        rows = [i for i in rows if windows[i].has_long_rope == longest.has_long_rope]
        yield Batch(
            [windows[i] for i in rows],
            blocks[rows],
            {row: profiled[i] for row, i in enumerate(rows) if i in profiled},
        )
        start += len(rows)


T = TypeVar("T")


def in_memory(batch: Batch, read: Callable[[Batch], T]) -> list[T]:
    """Read a batch; where it does not fit into memory, its halves.

    Args:
        batch: windows that are to run together.
        read: runs them. It must change nothing before it is done.

    Returns:
        One result, or those of the parts in the order of their windows.

    Raises:
        ModelError: a window does not fit even alone; the message names its document.
    """
    try:
        return [read(batch)]
    except (MemoryError, RuntimeError) as error:
        if not _is_of_memory(error):
            raise
        if len(batch.windows) == 1:
            window = batch.windows[0]
            raise ModelError(
                f"{window.name}: a window of {len(window)} tokens does not fit into memory beside "
                "the model; take shorter ones (--max-length), a smaller --dtype, or another "
                f"--device ({str(error).splitlines()[0] if str(error) else 'no memory'})"
            ) from error
    # here the error and the tensors that its traceback held are gone
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return [result for half in batch.halves() for result in in_memory(half, read)]


def give_back() -> None:
    """Hand freed memory back to the system where the C library keeps it (glibc does).

    Work that makes and frees blocks of many sizes, layer after layer, leaves holes that are never
    filled again: the process grows though nothing is kept.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)


def _is_of_memory(error: Exception) -> bool:
    """Accelerators have a class of their own for it; on processors torch says it in words."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error) for words in _WORDS)


_WORDS = ("not enough memory", "can't allocate memory", "out of memory")
