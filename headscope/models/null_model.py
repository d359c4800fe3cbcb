"""The null model: the same model with every attention matrix shuffled, which has learned nothing.

Scores of its heads are what this architecture shows by chance on this text, with these embeddings,
norms and MLPs. A real head must beat them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.models.engines.engine import Engine


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
                "matrices cannot be shuffled; run without --null-model"
            )
        if matrix.untyped_storage().data_ptr() not in stored:
            raise ModelError(
                "some attention weights are computed from other tensors (as by weight_norm), so "
                "that they cannot be shuffled; run without --null-model, or make "
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
