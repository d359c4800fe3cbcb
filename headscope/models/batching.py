"""Windows that run together: how many at a time, and how they are padded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headscope.corpus.window import PADDING, Window

BATCH_TOKENS = 1_024
"""Tokens of one forward pass on a processor; bounds memory. With twice as many, glibc hands GPT-2
small's temporaries back to the system and asks for new pages each time, a tenth of all time."""
ACCELERATOR_BATCH_TOKENS = 8_192
"""Tokens of one forward pass elsewhere."""
ALL_TOGETHER = sys.maxsize
"""Tokens of a forward pass that holds all windows."""


def batch_tokens_on(device: str) -> int:
    """Tokens of one forward pass on a device."""
    return BATCH_TOKENS if device == "cpu" else ACCELERATOR_BATCH_TOKENS


def in_batches(windows: Sequence[Window], tokens: int) -> Iterator[Sequence[Window]]:
    """Neighbouring windows, as many at a time as are so many tokens together, padding included.

    Windows with other rotary frequencies run apart.

    >>> lengths = [6, 4, 3, 9]
    >>> windows = [Window("w", np.arange(n), ("a",) * n) for n in lengths]
    >>> [[len(window) for window in batch] for batch in in_batches(windows, 12)]
    [[6, 4], [3], [9]]
    """
    start = 0
    while start < len(windows):
        stop, longest = start + 1, len(windows[start])
        while stop < len(windows):
            longest = max(longest, len(windows[stop]))
            same_rope = windows[stop].has_long_rope == windows[start].has_long_rope
            if not same_rope or (stop + 1 - start) * longest > tokens:
                break
            stop += 1
        yield windows[start:stop]
        start = stop


def padded_tokens(windows: Sequence[Window]) -> Int[Tensor, "window position"]:
    """Token ids, padded on the right with the beginning-of-text token.

    With −1 where queries would see it, as in an encoder: it must be hidden then.
    """
    longest, first = max(map(len, windows)), windows[0]
    padding = PADDING if first.attention_kind.sees_future else first.tokens[0]
    ids = np.full((len(windows), longest), padding, first.tokens.dtype)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = window.tokens
    return torch.from_numpy(ids)
