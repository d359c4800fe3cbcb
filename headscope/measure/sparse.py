"""Sparse matrices that add up cells by group."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

# torch says that sparse tensors are in beta and unchecked; the product used here is tested
warnings.filterwarnings("ignore", message="(?s).*Sparse (CSR|invariant)")


def summing_matrix(
    group: Int[ndarray, " entry"],
    cell: Int[ndarray, " entry"],
    weight: Float[ndarray, " entry"],
    shape: tuple[int, int],
) -> Tensor:
    """The sparse matrix `[group cell]` of the weights, in single precision."""
    order = np.argsort(group, kind="stable")
    return torch.sparse_csr_tensor(
        torch.from_numpy(np.searchsorted(group[order], np.arange(shape[0] + 1))),
        torch.from_numpy(cell[order]),
        torch.from_numpy(weight[order]).float(),
        size=shape,
        check_invariants=False,
    )
