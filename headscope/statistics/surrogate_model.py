"""Fit of surrogates: softmax models over classes of cells, by iterative scaling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.measure.sparse import summing_matrix

ROUNDS = 6
"""Number of rounds; each scales the weights of every view once, and then the rows to sum to 1."""
PRIOR = 0.5
"""Attention, in rows, that is added to both sums of a class, that of the head and that of the
surrogate, so that the weight of a rare class stays near 1."""


def fit(
    views: Sequence[Int[ndarray, " cell"]],
    sizes: Int[ndarray, " row"],
    attention: Float[Tensor, "cell head"],
) -> list[Float[Tensor, "class head"]]:
    """Logits of surrogates, for each view those of its classes.

    Args:
        views: the class of each cell, by view.
        sizes: the cells of each row; rows follow one another.
        attention: of the heads; a row that sums to less than 1 has a learned sink.
    """
    heads = attention.shape[1]
    if not len(sizes):
        return [attention.new_zeros(0, heads)] * len(views)
    row, row_sums = _grouped(_row_of_cell(sizes))
    attended = (row_sums @ attention)[row]
    attention = attention / attended.where(attended > 0, 1)
    groups = [_grouped(view) for view in views]
    goals = [sums @ attention + PRIOR for _, sums in groups]
    logits = [torch.zeros_like(goal) for goal in goals]
    surrogate = torch.ones_like(attention)
    surrogate /= (row_sums @ surrogate)[row]
    tiny = torch.finfo(surrogate.dtype).tiny
    for _ in range(ROUNDS):
        for (cell_class, sums), logit, goal in zip(groups, logits, goals, strict=True):
            reached = sums @ surrogate + PRIOR
            step = goal / reached
            logit += step.log()
            surrogate *= step.index_select(0, cell_class)
        total = (row_sums @ surrogate).clamp_min(tiny)
        surrogate *= (1 / total).index_select(0, row)
    return logits


def predict(
    logits: Sequence[Float[Tensor, "class head"]],
    views: Sequence[Int[ndarray, " cell"]],
    sizes: Int[ndarray, " row"],
) -> Float[Tensor, "cell head"]:
    """The rows of surrogates, each summing to 1; classes that were not fitted have logit 0."""
    heads = logits[0].shape[1]
    cells = torch.zeros(len(views[0]), heads)
    for logit, view in zip(logits, views, strict=True):
        classes = int(view.max()) + 1
        unknown = max(0, classes - len(logit))
        known = nn.functional.pad(logit, (0, 0, 0, unknown))
        cell_class = torch.from_numpy(view).int()
        cells += known.index_select(0, cell_class)
    row, row_sums = _grouped(_row_of_cell(sizes))
    lengths = torch.from_numpy(sizes)
    largest = torch.segment_reduce(cells, "max", lengths=lengths, axis=0)
    largest_of_row = largest.index_select(0, row)
    strength = (cells - largest_of_row).exp()
    total = row_sums @ strength
    return strength / total.index_select(0, row)


def _row_of_cell(sizes: Int[ndarray, " row"]) -> Int[ndarray, " cell"]:
    return np.repeat(np.arange(len(sizes)), sizes)


def _grouped(
    group: Int[ndarray, " cell"],
) -> tuple[Int[Tensor, " cell"], Float[Tensor, "group cell"]]:
    """The group of each cell, and the matrix that adds up the cells of each group."""
    cells = np.arange(len(group))
    groups = int(group.max()) + 1
    weights = np.ones(len(cells))
    matrix = summing_matrix(group, cells, weights, (groups, len(cells)))
    return torch.from_numpy(group).int(), matrix
