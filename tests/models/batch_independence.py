"""A check that a window's patterns do not depend on the windows that are read beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from headscope.corpus.window import Window
from headscope.measure.batches import Batch, batches
from headscope.models.engines.engine import stream_patterns
from headscope.models.stream import ALL_TOGETHER, in_batches, padded_tokens

LENGTHS = (31, 64, 9, 33, 32, 50)


def windows_of(model: Any) -> list[Window]:
    rng = np.random.default_rng(0)
    windows = [
        Window(str(n), rng.integers(1, 90, n), ("a",) * n) for n in LENGTHS if n <= model.context
    ]
    return [model.tokenizer.frame.close(window) for window in windows]


def read(model: Any, groups: Iterable[Sequence[Window]]) -> dict[tuple[str, int], torch.Tensor]:
    """Each window's pattern in each layer."""
    patterns: dict[tuple[str, int], torch.Tensor] = {}

    def take(layer: int, pattern: torch.Tensor) -> None:
        for row, window in zip(pattern, group, strict=True):
            size = len(window)
            patterns[window.name, layer] = row[:, :size, :size].float().clone()

    for group in groups:
        stream_patterns(model.engine, padded_tokens(group), take)
    return patterns


def check_batches(model: Any) -> None:
    windows = windows_of(model)
    alone = read(model, ([window] for window in windows))
    blocks = np.zeros(len(windows), np.int64)
    for groups in (
        list(in_batches(windows, ALL_TOGETHER)),
        [batch.windows for batch in batches(Batch(windows, blocks), tokens=10_000)],
        [[window] for window in reversed(windows)],
    ):
        together = read(model, groups)
        assert together.keys() == alone.keys()
        for place, pattern in alone.items():
            assert torch.allclose(pattern, together[place], atol=1e-4), place
