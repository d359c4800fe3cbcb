"""The content term of a rule: a q·k product of low rank from the layer's input.

Query and key are the head's own before any rotation, linear in the layer's input. Of their product
no more than `rank` dimensions are kept: which ones is fitted, on top of the rule's features.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.projections import projections
from headscope.studies.explain.catalogue import QueryTable
from headscope.studies.explain.softmax import map_heads

STEPS = 40
RATE = 0.1
SHRINK = 0.01
"""Penalty per row on the squared entries of both factors, in units of whitened inputs."""
MIN_VARIANCE = 1e-4
"""Least variance of a direction of queries or keys, of the largest: less is not read."""

_Vectors = Float[Tensor, "head window position width"]


@dataclass(frozen=True, eq=False)
class Content:
    """Logits of each head of a layer: Σ over `rank` of (query · query_factor)(key · key_factor)."""

    query_factor: Float[Tensor, "head rank width"]
    key_factor: Float[Tensor, "head rank width"]

    @property
    def rank(self) -> int:
        """Dimensions of the product that are kept."""
        return self.query_factor.shape[1]

    def logits(
        self,
        query: Float[Tensor, "head window position width"],
        key: Float[Tensor, "head window position width"],
    ) -> Float[Tensor, "head window position position"]:
        """The term at every query and key of windows."""
        query_part = torch.einsum("hwpd,hrd->hwpr", query, self.query_factor)
        key_part = torch.einsum("hwpd,hrd->hwpr", key, self.key_factor)
        logits: Tensor = query_part @ key_part.transpose(-1, -2)
        return logits


def queries_and_keys(
    attention: nn.Module,
    dimensions: AttentionDimensions,
    stream: Float[Tensor, "window position d_model"],
) -> tuple[
    Float[Tensor, "head window position width"], Float[Tensor, "head window position width"]
]:
    """Every head's queries and keys before rotation and without biases, each with a 1 at its end.

    The 1 lets a factor hold what a bias adds. Heads that share keys get them each.
    """
    to_query, to_key = projections(attention, dimensions)[:2]
    groups = dimensions.heads // dimensions.key_value_heads
    vectors = []
    for matrix, heads in ((to_query, dimensions.heads), (to_key, dimensions.key_value_heads)):
        by_head = matrix.reshape(heads, dimensions.d_head, -1).to(stream.dtype)
        products = torch.einsum("wpm,hdm->hwpd", stream, by_head).float()
        vectors.append(torch.cat([products, torch.ones_like(products[..., :1])], -1))
    return vectors[0], vectors[1].repeat_interleave(groups, 0)


def fit_content(
    attention: Float[Tensor, "head row key"],
    base: Float[Tensor, "head row key"],
    rows: QueryTable,
    count: int,
    vectors: tuple[_Vectors, _Vectors],
    *,
    rank: int,
) -> Content:
    """The term of least divergence on the first rows, by gradient descent (Adam).

    It begins with the `rank` largest directions of the gradient at 0, in whitened coordinates, and
    is scaled there so that a Newton step along them is made.

    Args:
        attention: the heads' own.
        base: the logits of their rules.
        rows: the queries.
        count: how many of them, from the first on, are fitted.
        vectors: the heads' queries and keys at every position of all windows.
        rank: how many dimensions are kept.
    """
    window, query_position = rows.window[:count], rows.query[:count]
    windows = int(window.max()) + 1

    def fit(head: int) -> tuple[Tensor, Tensor]:
        one = slice(head, head + 1)
        query, key = (vector[one, :windows] for vector in vectors)
        to_query, to_key = _whitening(query), _whitening(key)
        q = torch.einsum("hwpd,hed->hwpe", query, to_query)[:, window, query_position]
        k = torch.einsum("hwpd,hed->hwpe", key, to_key)
        # −∞ stays −∞ whatever is added, so that no step masks again
        masked = base[one, :count].masked_fill(~rows.seen[:count], -torch.inf)
        problem = _Problem(attention[one, :count], masked, q, k, window)
        query_factor, key_factor = _adam(problem, *problem.begin(rank))
        return query_factor @ to_query, key_factor @ to_key

    query_factor, key_factor = zip(*map_heads(fit, len(attention)), strict=True)
    return Content(torch.cat(query_factor), torch.cat(key_factor))


def _whitening(vectors: Float[Tensor, "head window position width"]) -> Tensor:
    """Maps after which directions of vectors have a second moment of 1; the faint ones are left."""
    flat = vectors.flatten(1, 2).double()
    moment = flat.transpose(1, 2) @ flat / flat.shape[1]
    values, axes = torch.linalg.eigh(moment)
    strong = values > MIN_VARIANCE * values[:, -1:]
    scale = torch.where(strong, values.clamp_min(1e-12).rsqrt(), 0)
    transform: Tensor = (axes * scale[:, None]).transpose(1, 2).float()
    return transform


class _Problem:
    """The divergence as a function of both factors, and its gradient by hand."""

    def __init__(
        self, attention: Tensor, base: Tensor, q: Tensor, k: Tensor, window: Tensor
    ) -> None:
        self.attention, self.base, self.q, self.k, self.window = attention, base, q, k, window
        starts = torch.searchsorted(window, torch.arange(k.shape[1] + 1)).tolist()
        self.parts = [(w, slice(*bounds)) for w, bounds in enumerate(pairwise(starts))]

    def gradient(self, query_factor: Tensor, key_factor: Tensor) -> tuple[Tensor, Tensor]:
        a = self.q @ query_factor.transpose(1, 2)
        b = torch.einsum("hwpe,hre->hwpr", self.k, key_factor)
        logits = self.base.clone()
        for w, part in self.parts:
            logits[:, part] += a[:, part] @ b[:, w].transpose(1, 2)
        difference = logits.softmax(-1).sub_(self.attention)
        to_a, to_b = torch.empty_like(a), torch.empty_like(b)
        for w, part in self.parts:
            to_a[:, part] = difference[:, part] @ b[:, w]
            to_b[:, w] = difference[:, part].transpose(1, 2) @ a[:, part]
        rows = len(self.window)
        query_gradient = to_a.transpose(1, 2) @ self.q / rows + SHRINK * query_factor
        key_gradient = torch.einsum("hwpr,hwpe->hre", to_b, self.k) / rows + SHRINK * key_factor
        return query_gradient, key_gradient

    def begin(self, rank: int) -> tuple[Tensor, Tensor]:
        difference = self.attention - self.base.softmax(-1)
        total = torch.zeros(len(self.q), self.q.shape[-1], self.k.shape[-1])
        for w, part in self.parts:
            total += self.q[:, part].transpose(1, 2) @ (difference[:, part] @ self.k[:, w])
        u, s, v = torch.linalg.svd(total / len(self.window))
        root = s[:, :rank].sqrt()
        return (u[:, :, :rank] * root[:, None]).transpose(1, 2), v[:, :rank] * root[..., None]


def _adam(problem: _Problem, query_factor: Tensor, key_factor: Tensor) -> tuple[Tensor, Tensor]:
    values = [query_factor.clone(), key_factor.clone()]
    means = [torch.zeros_like(factor) for factor in values]
    squares = [torch.zeros_like(factor) for factor in values]
    for step in range(1, STEPS + 1):
        rate = RATE * min(1.0, 2 * (1 - (step - 1) / STEPS))
        for i, gradient in enumerate(problem.gradient(*values)):
            means[i].mul_(0.9).add_(gradient, alpha=0.1)
            squares[i].mul_(0.98).add_(gradient**2, alpha=0.02)
            scale = (squares[i] / (1 - 0.98**step)).sqrt().add_(1e-8)
            values[i].sub_(rate * means[i] / (1 - 0.9**step) / scale)
    return values[0], values[1]
