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
"""Times that the weights of every view are scaled, and then each row to sum to 1."""
PRIOR = 0.5
"""Rows' worth of attention that is added to what a class has and to what it should have: of a rare
class the other views decide."""


def fit(
    views: Sequence[Int[ndarray, " cell"]],
    sizes: Int[ndarray, " row"],
    attention: Float[Tensor, "cell head"],
) -> list[Float[Tensor, "class head"]]:
    """Weights of surrogates, for each view those of its classes.

    Args:
        views: the class of each cell, by view.
        sizes: the cells of each row; rows follow one another.
        attention: of the heads; a row that sums to less than 1 has a learned sink.
    """
    if not len(sizes):
        return [attention.new_ones(0, attention.shape[1], dtype=torch.float64)] * len(views)
    row, row_sums = _grouped(np.repeat(np.arange(len(sizes)), sizes))
    groups = [_grouped(view) for view in views]
    total = (row_sums @ attention)[row]
    attention = attention / total.where(total > 0, 1)
    goals = [sums @ attention + PRIOR for _, sums in groups]
    weights = [torch.ones_like(goal, dtype=torch.float64) for goal in goals]
    surrogate = torch.ones_like(attention)
    surrogate /= (row_sums @ surrogate)[row]
    for _ in range(ROUNDS):
        for (cell_class, sums), weight, goal in zip(groups, weights, goals, strict=True):
            step = goal / (sums @ surrogate + PRIOR)
            weight *= step
            surrogate *= step.index_select(0, cell_class)
        surrogate *= (1 / (row_sums @ surrogate)).index_select(0, row)
    return weights


def predict(
    weights: Sequence[Float[Tensor, "class head"]],
    views: Sequence[Int[ndarray, " cell"]],
    sizes: Int[ndarray, " row"],
) -> Float[Tensor, "cell head"]:
    """The rows of surrogates, each summing to 1; classes without a weight have weight 1."""
    strength = torch.ones(len(views[0]), weights[0].shape[1], dtype=torch.float64)
    for weight, view in zip(weights, views, strict=True):
        unknown = max(0, int(view.max()) + 1 - len(weight))
        known = nn.functional.pad(weight, (0, 0, 0, unknown), value=1.0)
        strength *= known.index_select(0, torch.from_numpy(view).int())
    row, row_sums = _grouped(np.repeat(np.arange(len(sizes)), sizes))
    return strength / (row_sums.double() @ strength).index_select(0, row)


def _grouped(
    group: Int[ndarray, " cell"],
) -> tuple[Int[Tensor, " cell"], Float[Tensor, "group cell"]]:
    """The group of each cell, and the matrix that adds up the cells of each group."""
    cells = np.arange(len(group))
    shape = int(group.max()) + 1, len(group)
    matrix = summing_matrix(group, cells, np.ones(len(group)), shape)
    return torch.from_numpy(group).int(), matrix


def strongest_cells(
    strength: Float[ndarray, " cell"], sizes: Int[ndarray, " row"]
) -> Int[ndarray, " row"]:
    """The first of the strongest cells of each row."""
    starts = np.cumsum(sizes) - sizes
    maximum = np.repeat(np.maximum.reduceat(strength, starts), sizes)
    cells = np.flatnonzero(strength == maximum)
    return np.asarray(cells[np.searchsorted(cells, starts)])
