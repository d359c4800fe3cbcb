"""Windows that run together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
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
    """Batches of about `tokens` tokens each, padding included, the longest windows first."""
    order = sorted(range(len(windows)), key=lambda i: -len(windows[i]))
    start = 0
    while start < len(order):
        size = max(1, tokens // len(windows[order[start]]))
        rows = order[start : start + size]
        yield Batch(
            [windows[i] for i in rows],
            blocks[rows],
            {row: profiled[i] for row, i in enumerate(rows) if i in profiled},
        )
        start += size
