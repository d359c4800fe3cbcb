"""Which keys a streaming head keeps, and its attention over these alone."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headscope.models.engines.kernels import by_rows
from headscope.models.engines.rows import Beside, Heads, Keys, Seen, Sums, Values

SINKS, RECENT = 4, 64
"""Xiao et al. 2024 (StreamingLLM, section 3.2) keep four first tokens; 64 is the shortest of the
recent windows that are in use."""
ROWS = 128
"""Queries that are read at once: of their keys only those that some of them keeps."""


@dataclass(frozen=True)
class Kept:
    """What a streaming head keeps of the past: the first keys, and the last ones."""

    sinks: int = SINKS
    """The first keys, that of the beginning-of-text token among them."""
    recent: int = RECENT
    """The last keys, the query's own among them."""

    @property
    def reach(self) -> int:
        """Keys that it keeps at most; a text no longer than that is read whole."""
        return self.sinks + self.recent

    def places(self, start: int, stop: int) -> Int[Tensor, " kept"]:
        """The keys that any of the queries from `start` to `stop` keeps.

        >>> Kept(1, 2).places(4, 6).tolist()
        [0, 3, 4, 5]
        """
        recent = range(max(self.sinks, start - self.recent + 1), stop)
        return torch.tensor([*range(min(self.sinks, stop)), *recent])

    def hides(
        self, queries: Int[Tensor, " query"], keys: Int[Tensor, " key"]
    ) -> Bool[Tensor, "query key"]:
        """Where a query keeps no key: it is later, or neither among the first nor recent.

        >>> Kept(1, 2).hides(torch.tensor([3]), torch.arange(5)).tolist()
        [[False, True, False, False, True]]
        """
        back = queries[:, None] - keys
        return (back < 0) | ((back >= self.recent) & (keys >= self.sinks))


def attend_kept(
    query: Heads, key: Keys, value: Seen, scale: float, beside: Beside, kept: Kept
) -> tuple[Values, Sums]:
    """Softmax attention over the kept keys alone, and each row's log-sum-exp over these.

    Keys are as they were, at their own positions: no cache is renumbered. Memory and work grow
    with the kept keys, not with the length.
    """
    outputs, sums = [], []
    for start in range(0, query.shape[2], ROWS):
        rows = torch.arange(start, min(start + ROWS, query.shape[2]), device=query.device)
        keys = kept.places(start, start + len(rows)).to(query.device)
        hidden = kept.hides(rows, keys)
        exact = torch.promote_types(query.dtype, torch.float32)
        bias = torch.zeros(hidden.shape, dtype=exact, device=query.device)
        bias = bias.masked_fill(hidden, -torch.inf)[None, None]
        if beside.bias is not None:
            bias = bias + beside.bias[:, :, rows][..., keys]
        few = Beside(bias, beside.cap, beside.sink, later=True)
        output, normaliser = by_rows(
            query[:, :, rows], key[:, :, keys], value[:, :, keys], scale, few
        )
        outputs.append(output)
        sums.append(normaliser)
    return torch.cat(outputs, 2), torch.cat(sums, 2)
