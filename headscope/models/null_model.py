"""The null model: the same model with every attention matrix shuffled, which has learned nothing.

Scores of its heads are what this architecture shows by chance on this text, with these embeddings,
norms and MLPs. A real head must beat them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.models.engines.engine import Engine

EVERY, EVERY_TEXT = 4, 8
"""The null model reads one window of four, and one of eight of natural text, which is longer:
a percentile over heads needs less text than one head."""
MAX_TOKENS = 16_384
"""Tokens of each stimulus after which the null model has read enough."""


@contextmanager
def null_model(engine: Engine, *, seed: int) -> Iterator[None]:
    """Within this context the entries of each Q, K, V and O matrix are permuted, in place.

    Embeddings, norms, MLPs and all biases stay. A matrix that several projections share is permuted
    once. Afterwards the original matrices, which wait in the processor's memory, are copied back.

    Args:
        engine: a loaded model's engine.
        seed: seeds the permutations.

    Raises:
        ModelError: see `stored_matrices`.
    """
    matrices = stored_matrices(engine)
    originals = [matrix.to("cpu", copy=True) for matrix in matrices]
    try:
        _permute(matrices, seed)
        yield
    finally:
        for matrix, original in zip(matrices, originals, strict=True):
            matrix.copy_(original)


class WindowSample:
    """Chooses the windows that the null model reads: one of so many of each stimulus, drawn.

    Drawn, because several corpora take turns: every eighth window could be of one of them.
    """

    def __init__(self, *, seed: int, stimuli: Collection[str] | None = None) -> None:
        """Before anything is chosen.

        Args:
            seed: seeds the draw.
            stimuli: names of those that tags are compared with the null model on; all when None.
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


def stored_matrices(engine: Engine) -> list[Tensor]:
    """The distinct attention matrices of an engine, each a view into a parameter.

    Raises:
        ModelError: an attention layer shows no such matrices, they are not in memory, or the model
            computes them from other tensors: they cannot be shuffled.
    """
    source: Any = engine
    network: nn.Module = source.bridge if engine.name == "lens" else source.network
    stored = {weights.untyped_storage().data_ptr() for weights in network.parameters()}
    matrices = {}
    for matrix in engine.matrices():
        if matrix.is_meta:
            raise ModelError(
                "some layers fit on no device and are loaded as they are needed, so that their "
                "matrices cannot be shuffled; run without the null model (--no-twin)"
            )
        if matrix.untyped_storage().data_ptr() not in stored:
            raise ModelError(
                "some attention weights are computed from other tensors (as by weight_norm), so "
                "that they cannot be shuffled; run without the null model (--no-twin), or make "
                "them plain by torch.nn.utils.parametrize.remove_parametrizations"
            )
        matrices[matrix.data_ptr(), matrix.shape, matrix.stride()] = matrix
    return list(matrices.values())


@torch.no_grad()
def _permute(matrices: Sequence[Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for matrix in matrices:
        order = torch.randperm(matrix.numel(), generator=generator).to(matrix.device)
        matrix.copy_(matrix.flatten()[order].view_as(matrix))
