"""Queries and keys of one head at a relation's targets and controls, and what tells these apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.deal import deal
from headscope.models.engines.engine import StoppedError
from headscope.models.engines.fused import stopped
from headscope.models.engines.interface import reading
from headscope.models.engines.rows import Beside, Scores, pattern
from headscope.relations.relation import PairSet, Relation, find

Directions = Float[Tensor, "dimension width"]


@dataclass(frozen=True, eq=False)
class Seen:
    """One window as a head sees it, after rotary embedding, with a relation's cells."""

    block: int
    query: Float[Tensor, "position width"]
    key: Float[Tensor, "position width"]
    scale: float
    beside: Beside
    pairs: PairSet

    def contrast(self) -> Float[Tensor, "width width"]:
        """Σ over queries of q kᵀ on target keys less that on as many control keys."""
        found = torch.zeros(self.query.shape[1], self.key.shape[1], dtype=torch.float64)
        for pairs, sign in ((self.pairs.targets, 1.0), (self.pairs.controls, -1.0)):
            query, key = (torch.from_numpy(each) for each in (pairs.query, pairs.key))
            weight = torch.from_numpy(pairs.weight * sign)[:, None]
            found += (self.query[query].double() * weight).T @ self.key[key].double()
        return found

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
                x - (x @ each.T) @ each for x, each in zip((query, key), without, strict=True)
            )
        rows = pattern(query[None, None], key[None, None], self.scale, self.beside)[0, 0]
        on, off = (
            float((rows[p.query, p.key].double().numpy() * p.weight).sum())
            for p in (self.pairs.targets, self.pairs.controls)
        )
        return on, off, len(self.pairs.targets.queries)


def seen_by(
    network: Any,
    head: tuple[int, int],
    windows: Sequence[Window],
    relation: Relation,
    *,
    seed: int,
) -> Iterator[Seen]:
    """Each window that has queries of a relation, as one head sees it.

    Args:
        network: of a fused engine.
        head: its layer's number in the model, and its own in the layer.
        windows: text, or another stimulus.
        relation: whose targets and controls are asked about.
        seed: seeds the controls.
    """
    blocks, _ = deal(windows)
    for index, window in enumerate(windows):
        pairs = find(relation, window, [seed, index])
        if pairs is not None:
            yield _seen(network, head, window, int(blocks[index]), pairs)


def _seen(network: Any, head: tuple[int, int], window: Window, block: int, pairs: PairSet) -> Seen:
    kept: list[Scores] = []

    def take(layer: int, scores: Scores) -> None:
        if layer == head[0]:
            kept.append(scores)
            raise StoppedError

    ids = torch.from_numpy(np.asarray(window.tokens, np.int64))[None].to(network.device)
    with torch.inference_mode(), reading(take), stopped():
        network.base_model(ids)
    scores = kept[0]
    group = head[1] // (scores.query.shape[1] // scores.key.shape[1])
    query, key = scores.query[0, head[1]].float().cpu(), scores.key[0, group].float().cpu()
    return Seen(block, query, key, scores.scale, _own(scores.beside, head[1]), pairs)


def _own(beside: Beside, head: int) -> Beside:
    """What one head has beside its queries and keys."""
    bias, sink = beside.bias, beside.sink
    if bias is not None:
        bias = bias[:1, head if bias.shape[1] > 1 else 0][:, None].cpu()
    return beside._replace(bias=bias, sink=None if sink is None else sink[head][None].cpu())


def pairs_of(contrast: Float[Tensor, "width width"]) -> tuple[Directions, Directions]:
    """The singular pairs of a contrast, the largest first: directions of queries, and of keys."""
    left, _, right = torch.linalg.svd(contrast)
    return left.T.float(), right.float()


def held_by(
    contrast: Float[Tensor, "width width"], queries: Directions, keys: Directions
) -> Float[ndarray, " dimension"]:
    """What each pair of directions holds of another contrast, as shares of the most that some hold.

    Found on other documents, pairs of noise hold as much above 0 as below.
    """
    each = torch.einsum("rq,qk,rk->r", queries.double(), contrast, keys.double()).cumsum(0).numpy()
    return np.asarray(each / max(float(each.max()), 1e-30))


def random_directions(width: int, count: int, rng: np.random.Generator) -> Directions:
    """So many orthonormal directions, drawn evenly."""
    drawn = np.linalg.qr(rng.normal(size=(width, count)))[0].T
    return torch.from_numpy(np.ascontiguousarray(drawn)).float()


def dimensions_for(held: Float[ndarray, " dimension"], share: float) -> int:
    """How many of the first pairs hold this share.

    >>> dimensions_for(np.array([0.6, 0.95, 1.0]), 0.9)
    2
    """
    return 1 + int(np.argmax(held >= share))


def halves(seen: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
    """Windows of even and of odd blocks of documents: to find directions on, and to judge them."""
    even = [each for each in seen if each.block % 2 == 0]
    return even, [each for each in seen if each.block % 2]


def block_sums(
    found: Sequence[tuple[float, float, int]], blocks: Int[ndarray, " window"]
) -> tuple[Float[ndarray, " block"], Int[ndarray, " block"]]:
    """The lift summed over queries, and how many these are, of each block."""
    lift = np.array([on - off for on, off, _ in found])
    count = np.array([n for _, _, n in found], float)
    size = int(blocks.max()) + 1
    sums, counts = (np.bincount(blocks, each, size) for each in (lift, count))
    return sums[counts > 0], counts[counts > 0].astype(np.int64)
