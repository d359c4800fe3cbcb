"""What text features leave over: a q·k term of low rank from the layer's input, told apart.

Query and key are the head's own before any rotation, linear in the layer's input. Of their product
no more than `rank` dimensions are kept: which ones is fitted, on top of the rule's features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.studies.explain.catalogue import Rows
from headscope.studies.explain.threads import by_head

STEPS = 40
RATE = 0.1
SHRINK = 0.01
"""Penalty per row on the squared entries of both factors, in units of whitened inputs."""
KEPT = 1e-4
"""Least variance of a direction of queries or keys, of the largest: less is not read."""

_Vectors = Float[Tensor, "head window position width"]


@dataclass(frozen=True, eq=False)
class Content:
    """Logits Σ over `rank` of (query · left)(key · right), for each head of a layer."""

    left: Float[Tensor, "head rank width"]
    right: Float[Tensor, "head rank width"]

    @property
    def rank(self) -> int:
        """Dimensions of the product that are kept."""
        return self.left.shape[1]

    def logits(
        self,
        query: Float[Tensor, "head window position width"],
        key: Float[Tensor, "head window position width"],
    ) -> Float[Tensor, "head window position position"]:
        """The term at every query and key of windows."""
        left = torch.einsum("hwpd,hrd->hwpr", query, self.left)
        right = torch.einsum("hwpd,hrd->hwpr", key, self.right)
        found: Tensor = left @ right.transpose(-1, -2)
        return found


def fit_content(
    attention: Float[Tensor, "head row key"],
    base: Float[Tensor, "head row key"],
    rows: Rows,
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

    def fit(head: int) -> tuple[Tensor, Tensor]:
        own = slice(head, head + 1)
        both = (vectors[0][own], vectors[1][own])
        return _fit_head((attention[own, :count], base[own, :count]), rows, count, both, rank)

    left, right = zip(*by_head(fit, len(attention)), strict=True)
    return Content(torch.cat(left), torch.cat(right))


def _fit_head(
    logits: tuple[Tensor, Tensor],
    rows: Rows,
    count: int,
    vectors: tuple[_Vectors, _Vectors],
    rank: int,
) -> tuple[Tensor, Tensor]:
    window, place = rows.window[:count], rows.query[:count]
    windows = int(window.max()) + 1
    query, key = (each[:, :windows] for each in vectors)
    to_query, to_key = _whitening(query), _whitening(key)
    q = torch.einsum("hwpd,hed->hwpe", query, to_query)[:, window, place]
    k = torch.einsum("hwpd,hed->hwpe", key, to_key)
    problem = _Problem(*logits, rows.seen[:count], q, k, window)
    left, right = _adam(problem, *problem.begin(rank))
    return left @ to_query, right @ to_key


def _whitening(vectors: Float[Tensor, "head window position width"]) -> Tensor:
    """Maps after which directions of vectors have a second moment of 1; the faint ones are left."""
    flat = vectors.flatten(1, 2).double()
    moment = flat.transpose(1, 2) @ flat / flat.shape[1]
    values, axes = torch.linalg.eigh(moment)
    strong = values > KEPT * values[:, -1:]
    scale = torch.where(strong, values.clamp_min(1e-12).rsqrt(), 0)
    found: Tensor = (axes * scale[:, None]).transpose(1, 2).float()
    return found


class _Problem:
    """The divergence as a function of both factors, and its gradient by hand."""

    def __init__(
        self, attention: Tensor, base: Tensor, seen: Tensor, q: Tensor, k: Tensor, window: Tensor
    ) -> None:
        # −∞ stays −∞ whatever is added, so that no step masks again
        self.attention, self.base = attention, base.masked_fill(~seen, -torch.inf)
        self.q, self.k, self.window = q, k, window
        self.starts = torch.searchsorted(window, torch.arange(k.shape[1] + 1)).tolist()

    def logits(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = self.q @ left.transpose(1, 2)
        b = torch.einsum("hwpe,hre->hwpr", self.k, right)
        found = self.base.clone()
        for w, part in self._parts():
            found[:, part] += a[:, part] @ b[:, w].transpose(1, 2)
        return found, a, b

    def gradient(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        logits, a, b = self.logits(left, right)
        difference = logits.softmax(-1).sub_(self.attention)
        to_a, to_b = torch.empty_like(a), torch.empty_like(b)
        for w, part in self._parts():
            to_a[:, part] = difference[:, part] @ b[:, w]
            to_b[:, w] = difference[:, part].transpose(1, 2) @ a[:, part]
        rows = len(self.window)
        own = to_a.transpose(1, 2) @ self.q / rows + SHRINK * left
        other = torch.einsum("hwpr,hwpe->hre", to_b, self.k) / rows + SHRINK * right
        return own, other

    def begin(self, rank: int) -> tuple[Tensor, Tensor]:
        difference = self.attention - self.base.softmax(-1)
        total = torch.zeros(len(self.q), self.q.shape[-1], self.k.shape[-1])
        for w, part in self._parts():
            total += self.q[:, part].transpose(1, 2) @ (difference[:, part] @ self.k[:, w])
        u, s, v = torch.linalg.svd(total / len(self.window))
        root = s[:, :rank].sqrt()
        return (u[:, :, :rank] * root[:, None]).transpose(1, 2), v[:, :rank] * root[..., None]

    def _parts(self) -> list[tuple[int, slice]]:
        bounds = zip(self.starts, self.starts[1:], strict=False)
        return [(w, slice(a, b)) for w, (a, b) in enumerate(bounds)]


def _adam(problem: _Problem, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    values = [left.clone(), right.clone()]
    means = [torch.zeros_like(each) for each in values]
    squares = [torch.zeros_like(each) for each in values]
    for step in range(1, STEPS + 1):
        rate = RATE * min(1.0, 2 * (1 - (step - 1) / STEPS))
        for i, gradient in enumerate(problem.gradient(*values)):
            means[i].mul_(0.9).add_(gradient, alpha=0.1)
            squares[i].mul_(0.98).add_(gradient**2, alpha=0.02)
            scale = (squares[i] / (1 - 0.98**step)).sqrt().add_(1e-8)
            values[i].sub_(rate * means[i] / (1 - 0.9**step) / scale)
    return values[0], values[1]
