"""The null model: the same model with every attention matrix shuffled, which has learned nothing.

Scores of its heads are what this architecture shows by chance on this text, with these embeddings,
norms and MLPs. A real head must beat them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from headscope.errors import ModelError
from headscope.models.engines.engine import Engine, stream_patterns

TOKENS = 8
"""Length of the text on which the patterns of all layers must change."""


@contextmanager
def null_model(engine: Engine, *, seed: int) -> Iterator[None]:
    """Within this context the entries of each Q, K, V and O matrix are permuted, in place.

    Embeddings, norms, MLPs and all biases stay. A matrix that several projections share is permuted
    once. Afterwards the original matrices, which wait in the processor's memory, are copied back.

    Raises:
        ModelError: see `stored_matrices`; or a layer's pattern is what it was before.
    """
    matrices = stored_matrices(engine)
    before = _probe_patterns(engine, matrices[0].device)
    originals = [matrix.to("cpu", copy=True) for matrix in matrices]
    try:
        # in place: the matrices are views into the weights that the engine computes with
        generator = torch.Generator().manual_seed(seed)
        for matrix in matrices:
            order = torch.randperm(matrix.numel(), generator=generator).to(matrix.device)
            matrix.copy_(matrix.flatten()[order].view_as(matrix))
        # a model that computes with other matrices than those shuffled has no null model
        after = _probe_patterns(engine, matrices[0].device)
        unchanged = [
            layer for layer, pattern in before.items() if torch.equal(pattern, after[layer])
        ]
        if unchanged:
            raise ModelError(
                f"layer {unchanged[0]} attends as before its matrices were shuffled: the model "
                "computes with others, so that it has no null model; run without --null-model"
            )
        yield
    finally:
        for matrix, original in zip(matrices, originals, strict=True):
            matrix.copy_(original)


def stored_matrices(engine: Engine) -> list[Tensor]:
    """The distinct attention matrices of an engine, each a view into a parameter.

    Raises:
        ModelError: an attention layer shows no such matrices, or they are not in memory.
    """
    stored = engine.matrices()
    if any(matrix.is_meta for matrix in stored):
        raise ModelError(
            "some layers fit on no device and are loaded as they are needed, so that their "
            "matrices cannot be shuffled; run without --null-model"
        )
    matrices = {(m.data_ptr(), m.shape, m.stride()): m for m in stored}
    return list(matrices.values())


def _probe_patterns(engine: Engine, device: torch.device) -> dict[int, Tensor]:
    """Each layer's pattern on a few tokens, by the number of the layer."""
    patterns: dict[int, Tensor] = {}
    tokens = torch.arange(1, 1 + TOKENS, device=device)[None]
    stream_patterns(engine, tokens, lambda layer, rows: patterns.update({layer: rows.clone()}))
    return patterns
