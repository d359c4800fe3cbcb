"""Contrast of one head's queries and keys at a relation's targets and at its controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.block_assignment import assign_blocks
from headscope.models.engines.engine import Vectors
from headscope.models.engines.log_attention import ScoreTerms, pattern
from headscope.models.load import Model
from headscope.models.stream import LayerAttention, stream_attention
from headscope.relations.relation import PairSet, Relation, find

Directions = Float[Tensor, "dimension width"]


@dataclass(frozen=True, eq=False)
class HeadWindow:
    """Queries and keys of a head in one window, after rotary embedding, with a relation's cells."""

    block: int
    query: Float[Tensor, "position width"]
    key: Float[Tensor, "position width"]
    scale: float
    terms: ScoreTerms
    pairs: PairSet

    def contrast(self) -> Float[Tensor, "width width"]:
        """Σ over queries of q kᵀ on target keys less that on as many control keys."""
        contrast = torch.zeros(self.query.shape[1], self.key.shape[1], dtype=torch.float64)
        for pairs, sign in ((self.pairs.targets, 1.0), (self.pairs.controls, -1.0)):
            query, key = (torch.from_numpy(cells) for cells in (pairs.query, pairs.key))
            weight = torch.from_numpy(pairs.weight * sign)[:, None]
            contrast += (self.query[query].double() * weight).T @ self.key[key].double()
        return contrast

    def masses(
        self, without: tuple[Directions, Directions] | None = None
    ) -> tuple[float, float, int]:
        """Attention on targets and on controls, summed over queries, and how many queries.

        Args:
            without: directions that are projected out of queries and of keys; none when None.
        """
        query, key = self.query, self.key
        if without is not None:
            query, key = (
                x - (x @ removed.T) @ removed
                for x, removed in zip((query, key), without, strict=True)
            )
        rows = pattern(query[None, None], key[None, None], self.scale, self.terms)[0, 0]
        on, off = (
            float((rows[p.query, p.key].double().numpy() * p.weight).sum())
            for p in (self.pairs.targets, self.pairs.controls)
        )
        return on, off, len(self.pairs.targets.queries)


def head_windows(
    model: Model,
    head: tuple[int, int],
    windows: Sequence[Window],
    relation: Relation,
    *,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> Iterator[HeadWindow]:
    """Queries and keys of one head in each window that has queries of a relation.

    Args:
        model: a model that runs under the fused engine.
        head: its layer's number in the model, and its own in the layer.
        windows: text, or another stimulus.
        relation: whose targets and controls are read.
        seed: seeds the controls.
        advance: called after each window.
    """
    blocks, _ = assign_blocks(windows)
    for index, window in enumerate(windows):
        pairs = find(relation, window, [seed, index])
        if pairs is not None:
            yield _head_window(model, head, window, int(blocks[index]), pairs)
        advance()


def _head_window(
    model: Model, head: tuple[int, int], window: Window, block: int, pairs: PairSet
) -> HeadWindow:
    layer, number = head
    vectors: list[HeadWindow] = []

    def add(attention: LayerAttention) -> None:
        if attention.layer != layer:
            return
        scores = next(iter(attention.rows)).of_head(number)
        query, key = scores.query[0, 0].float().cpu(), scores.key[0, 0].float().cpu()
        bias, sink = scores.terms.bias, scores.terms.sink
        terms = scores.terms._replace(
            bias=None if bias is None else bias[:1].cpu(), sink=None if sink is None else sink.cpu()
        )
        vectors.append(HeadWindow(block, query, key, scores.scale, terms, pairs))

    stream_attention(model, [window], lambda _: [Vectors()], add, layers=layer + 1)
    return vectors[0]


def pairs_of(contrast: Float[Tensor, "width width"]) -> tuple[Directions, Directions]:
    """The singular pairs of a contrast, the largest first: directions of queries, and of keys."""
    query_vectors, _, right = torch.linalg.svd(contrast)
    return query_vectors.T.float(), right.float()


def held_by(
    contrast: Float[Tensor, "width width"], queries: Directions, keys: Directions
) -> Float[ndarray, " dimension"]:
    """Shares of another contrast that the first pairs of directions hold, of the most that some do.

    Found on other documents, pairs of noise hold as much above 0 as below.
    """
    products = torch.einsum("rq,qk,rk->r", queries.double(), contrast, keys.double())
    held = products.cumsum(0).numpy()
    return np.asarray(held / max(float(held.max()), 1e-30))


def random_directions(width: int, count: int, rng: np.random.Generator) -> Directions:
    """So many orthonormal directions, drawn evenly."""
    basis = np.linalg.qr(rng.normal(size=(width, count)))[0].T
    return torch.from_numpy(np.ascontiguousarray(basis)).float()


def dimensions_for(held: Float[ndarray, " dimension"], share: float) -> int:
    """The number of first pairs that hold this share.

    >>> dimensions_for(np.array([0.6, 0.95, 1.0]), 0.9)
    2
    """
    return 1 + int(np.argmax(held >= share))


def halves(
    windows: Sequence[HeadWindow],
) -> tuple[list[HeadWindow], list[HeadWindow]]:
    """Windows of even and of odd blocks of documents: to find directions on, and to judge them."""
    even = [window for window in windows if window.block % 2 == 0]
    return even, [window for window in windows if window.block % 2]


def block_sums(
    masses: Sequence[tuple[float, float, int]], blocks: Int[ndarray, " window"]
) -> tuple[Float[ndarray, " block"], Int[ndarray, " block"]]:
    """The lift summed over queries, and how many these are, of each block."""
    lift = np.array([on - off for on, off, _ in masses])
    count = np.array([n for _, _, n in masses], float)
    size = int(blocks.max()) + 1
    sums, counts = (np.bincount(blocks, values, size) for values in (lift, count))
    return sums[counts > 0], counts[counts > 0].astype(np.int64)
