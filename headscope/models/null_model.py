"""The twin: the same model with every attention matrix shuffled, which has learned nothing.

What its heads score is what this architecture shows by chance on this text, with these embeddings,
norms and MLPs. A real head must beat it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.models.engines.engine import Engine

EVERY, EVERY_TEXT = 4, 8
"""The twin reads one window of four, and of natural text, of which there is more, one of eight: a
percentile over heads needs less text than one head."""
MAX_TOKENS = 16_384
"""Tokens of each stimulus after which the twin has read enough."""


def check_null_model(engine: Engine) -> None:
    """Refuse a model that can have no twin, before anything is read.

    Raises:
        ModelError: an attention layer shows no such matrices, or they are not in memory.
    """
    if any(matrix.is_meta for matrix in engine.matrices()):
        raise ModelError(
            "some layers fit on no device and are loaded as they are needed, so that their "
            "matrices cannot be shuffled; run without the twin (--no-twin)"
        )


@contextmanager
def null_model(engine: Engine, *, seed: int) -> Iterator[None]:
    """Within this context the entries of each Q, K, V and O matrix are permuted, in place.

    Embeddings, norms, MLPs and all biases stay. Afterwards every entry is back where it was.

    Args:
        engine: a loaded model's engine.
        seed: seeds the permutations.

    Raises:
        ModelError: an attention layer shows no such matrices.
    """
    matrices = engine.matrices()
    _permute(matrices, seed, back=False)
    try:
        yield
    finally:
        _permute(matrices, seed, back=True)


class WindowSample:
    """Says which of the next windows the twin reads: one of so many of each stimulus, drawn.

    Drawn, because several corpora take turns: every eighth window could be of one of them.
    """

    def __init__(self, *, seed: int, stimuli: Collection[str] | None = None) -> None:
        """Before anything is chosen.

        Args:
            seed: seeds the draw.
            stimuli: names of those that tags are held against the twin on; all when None.
        """
        self.tokens: dict[str, int] = {}
        self._rng = np.random.default_rng(seed)
        self._stimuli = stimuli

    def __call__(self, windows: Sequence[Window]) -> set[int]:
        """The places of the chosen windows among these."""
        indices: set[int] = set()
        for stimulus in dict.fromkeys(window.stimulus for window in windows):
            of_stimulus = [i for i, window in enumerate(windows) if window.stimulus == stimulus]
            every = EVERY_TEXT if stimulus == "text" else EVERY
            for start in range(0, len(of_stimulus), every):
                group = of_stimulus[start : start + every]
                index = group[int(self._rng.integers(len(group)))]
                used = self.tokens.get(stimulus, 0)
                is_compared = self._stimuli is None or stimulus in self._stimuli
                if is_compared and used < MAX_TOKENS:
                    self.tokens[stimulus] = used + len(windows[index])
                    indices.add(index)
        return indices


@torch.no_grad()
def _permute(matrices: Sequence[Tensor], seed: int, *, back: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    for matrix in matrices:
        order = torch.randperm(matrix.numel(), generator=generator).to(matrix.device)
        flat = matrix.flatten()
        permuted = torch.empty_like(flat).scatter_(0, order, flat) if back else flat[order]
        matrix.copy_(permuted.view_as(matrix))
