"""Key/value heads that stream: they keep the first keys and the last ones, and nothing between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headscope.models.engines.kernels import by_rows, softmax_attend
from headscope.models.engines.log_attention import Heads, Keys, ScoreTerms, Seen, Sums, Values
from headscope.models.engines.override import AttentionCall, Output
from headscope.models.intervention import AttentionChange

SINKS, RECENT = 4, 64
"""Xiao et al. 2024 (StreamingLLM, section 3.2) keep four first tokens; 64 is the shortest of the
recent windows that are in use."""
ROWS = 128
"""Queries that are read at once: of their keys only those that some of them keeps."""


@dataclass(frozen=True)
class SinkWindow:
    """The keys that a streaming head keeps of the past: the first ones and the last ones."""

    sinks: int = SINKS
    """The first keys, that of the beginning-of-text token among them."""
    recent: int = RECENT
    """The last keys, the query's own among them."""

    @property
    def reach(self) -> int:
        """Keys that it keeps at most; a text no longer than that is read whole."""
        return self.sinks + self.recent

    def keys(self, start: int, stop: int) -> Int[Tensor, " key"]:
        """The keys that any of the queries from `start` to `stop` keeps.

        >>> SinkWindow(1, 2).keys(4, 6).tolist()
        [0, 3, 4, 5]
        """
        recent = range(max(self.sinks, start - self.recent + 1), stop)
        return torch.tensor([*range(min(self.sinks, stop)), *recent])

    def hides(
        self, queries: Int[Tensor, " query"], keys: Int[Tensor, " key"]
    ) -> Bool[Tensor, "query key"]:
        """Keys that a query does not keep: later ones, and those neither first nor recent.

        >>> SinkWindow(1, 2).hides(torch.tensor([3]), torch.arange(5)).tolist()
        [[False, True, False, False, True]]
        """
        back = queries[:, None] - keys
        return (back < 0) | ((back >= self.recent) & (keys >= self.sinks))


@dataclass(frozen=True, eq=False)
class StreamingHeads(AttentionChange):
    """Some key/value heads that keep a window's sinks and recent keys only.

    All query heads of a group stream with their key/value head.
    """

    heads: Mapping[int, Sequence[int]]
    """By layer, which of its key/value heads."""
    key_value_heads: int
    """Of a layer."""
    window: SinkWindow

    @property
    def layers(self) -> frozenset[int]:
        """Those with such heads."""
        return frozenset(layer for layer, heads in self.heads.items() if len(heads))

    def attend(self, call: AttentionCall) -> Output:
        """Over the window's keys for heads that stream, as ever for others."""
        query, key, value = call.query, call.key, call.value
        groups = sorted(self.heads[call.layer])
        if len(groups) == self.key_value_heads:
            output, _ = attend_within(query, key, value, call.scale, call.score_terms, self.window)
            return output.transpose(1, 2).contiguous()
        size = query.shape[1] // self.key_value_heads
        streaming = [head for group in groups for head in range(group * size, (group + 1) * size)]
        # some layouts hand keys and values on once for every query head
        shared = groups if key.shape[1] == self.key_value_heads else streaming
        output, _ = softmax_attend(query, key, value, call.scale, call.score_terms)
        output = output.clone()
        output[:, streaming], _ = attend_within(
            query[:, streaming],
            key[:, shared],
            value[:, shared],
            call.scale,
            call.score_terms.of_heads(streaming),
            self.window,
        )
        return output.transpose(1, 2).contiguous()


def attend_within(
    query: Heads, key: Keys, value: Seen, scale: float, terms: ScoreTerms, window: SinkWindow
) -> tuple[Values, Sums]:
    """Softmax attention over the window's keys alone, and each row's log-sum-exp over these.

    Keys are as they were, at their own positions: no cache is renumbered. Memory and work grow
    with the window, not with the length.
    """
    outputs, sums = [], []
    for start in range(0, query.shape[2], ROWS):
        rows = torch.arange(start, min(start + ROWS, query.shape[2]), device=query.device)
        keys = window.keys(start, start + len(rows)).to(query.device)
        hidden = window.hides(rows, keys)
        exact = torch.promote_types(query.dtype, torch.float32)
        bias = torch.zeros(hidden.shape, dtype=exact, device=query.device)
        bias = bias.masked_fill(hidden, -torch.inf)[None, None]
        if terms.bias is not None:
            bias = bias + terms.bias[:, :, rows][..., keys]
        row_terms = ScoreTerms(bias, terms.cap, terms.sink, sees_future=True)
        output, normaliser = by_rows(
            query[:, :, rows], key[:, :, keys], value[:, :, keys], scale, row_terms
        )
        outputs.append(output)
        sums.append(normaliser)
    return torch.cat(outputs, 2), torch.cat(sums, 2)
