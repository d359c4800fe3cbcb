"""From a model and text to the divergence of its heads, window by window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.engines.engine import Engine, stream_patterns
from headscope.studies.redundancy.divergence import divergence_sums

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Divergences:
    """The divergence of all pairs of heads, summed over the queries of each window."""

    sums: Float[ndarray, "window pair"]
    queries: Int[ndarray, " window"]
    """How many queries of each window were read."""

    @property
    def mean(self) -> Float[ndarray, " pair"]:
        """The mean over queries, in bits, in [0, 1]; comparable between texts of any length."""
        mean: Float[ndarray, " pair"] = self.sums.sum(0) / self.queries.sum()
        return mean


def evenly(size: int, count: int) -> Int[ndarray, " item"]:
    """`count` of the numbers below `size`, evenly spread; all of them when there are fewer."""
    count = min(size, count)
    # the middle of each of as many equal stretches
    return ((np.arange(count) + 0.5) * size / max(count, 1)).astype(np.int64)


def read_divergences(
    engine: Engine, windows: Sequence[Window], queries: int, device: str, progress: Progress
) -> Divergences:
    """Compare all heads of all layers at up to `queries` queries of each window.

    The beginning-of-text token is no query: it sees itself alone, where all heads agree. No more
    than the sampled rows of one window and a sum per window and pair are in memory.
    """
    total = sum(map(len, windows))
    sums, counts, done = [], [], 0
    for window in windows:
        positions = 1 + evenly(len(window) - 1, queries)
        tokens = torch.from_numpy(window.tokens)[None].to(device)
        sums.append(divergence_sums(sampled_rows(engine, tokens, positions), positions))
        counts.append(len(positions))
        done += len(window)
        progress(done, total)
    return Divergences(np.stack(sums), np.array(counts))


def sampled_rows(
    engine: Engine, tokens: Int[Tensor, "batch position"], queries: Int[ndarray, " query"]
) -> Float[Tensor, "head query key"]:
    """Each head's attention at these queries of one window, layer after layer, rows summing to 1.

    Normalised again in double precision: half-precision rows sum to 1 only nearly.
    """
    chosen = torch.from_numpy(queries).to(tokens.device)
    layers: list[Tensor] = []

    def take(layer: int, pattern: Float[Tensor, "batch head query key"]) -> None:
        layers.append(pattern[0, :, chosen].cpu().double())

    stream_patterns(engine, tokens, take)
    rows = torch.cat(layers)
    return rows / rows.sum(-1, keepdim=True)
