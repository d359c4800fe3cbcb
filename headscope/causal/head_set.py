"""Sets of heads that are changed together, and random sets that are matched to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import log

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.causal.rerun import CleanRun, Rerunner, TokenRows
from headscope.models.layout.projections import output_matrix

Head = tuple[int, int]
"""A layer and the number of a head in it."""
SETS = 20
"""Random sets that a set is compared with."""
NEAREST = 8
"""Heads most similar to a member, one of which stands in for it in a random set."""
_TINY = 1e-9  # an output may be zero


def heads_by_layer(heads: Collection[Head]) -> dict[int, list[int]]:
    """Numbers of heads by layer, both in order.

    >>> heads_by_layer([(4, 2), (1, 0), (4, 1)])
    {1: [0], 4: [1, 2]}
    """
    by_layer: dict[int, list[int]] = {}
    for layer, head in sorted(heads):
        by_layer.setdefault(layer, []).append(head)
    return by_layer


def output_norms(rerunner: Rerunner, runs: Iterable[CleanRun]) -> dict[Head, float]:
    """Mean norm of each head's output z W_O over the tokens of runs, without the first of each."""
    totals: dict[Head, float] = {}
    tokens = 0
    for run in runs:
        is_token = run.rows.after_first()
        tokens += int(is_token.sum())
        for layer, z in run.z.items():
            matrix = output_matrix(rerunner.outputs[layer])
            norms = _norms(z[is_token].float(), matrix.float())
            for head, total in enumerate(norms.sum(0).tolist()):
                earlier = totals.get((layer, head), 0.0)
                totals[layer, head] = earlier + total
    return {head: total / tokens for head, total in totals.items()}


def mean_outputs(
    rerunner: Rerunner, batches: Iterable[TokenRows]
) -> dict[int, Float[Tensor, "head width"]]:
    """Mean of each head's z over the tokens of all batches, without the first of each row."""
    sums: dict[int, Tensor] = {}
    tokens = 0
    for rows in batches:
        is_token = rows.after_first()
        tokens += int(is_token.sum())
        clean = rerunner.clean(rows)
        for layer, z in clean.z.items():
            of_batch = z[is_token].double().sum(0)
            sums[layer] = sums[layer] + of_batch if layer in sums else of_batch
    return {layer: (total / tokens).float() for layer, total in sums.items()}


def _norms(
    z: Float[Tensor, "token head width"], matrix: Float[Tensor, "head_width d_model"]
) -> Float[Tensor, "token head"]:
    """Norm of each head's output z W_O at each token."""
    heads = z.shape[1]
    by_head = matrix.reshape(heads, -1, matrix.shape[-1])
    outputs = torch.einsum("thw,hwm->thm", z, by_head)
    norms: Tensor = outputs.norm(dim=-1)
    return norms


def matched_sets(
    heads: Collection[Head], norms: Mapping[Head, float], *, count: int = SETS, seed: int = 0
) -> list[tuple[Head, ...]]:
    """Random sets of as many other heads, matched by layer and norm of output.

    Each member is replaced by one of the `NEAREST` most similar heads that are not in the set and
    not in the random set yet. Distance is |Δ layer| ÷ layers + |ln of the ratio of norms|.

    Args:
        heads: the set.
        norms: mean norm of the output of every head of the model.
        count: number of random sets.
        seed: draws them.

    Returns:
        Sets of as many heads as the set, or as there are others.
    """
    rng = np.random.default_rng(seed)
    members = sorted(heads)
    others = [head for head in norms if head not in set(members)]
    candidates = {member: _by_distance(member, others, norms) for member in members}
    return [_draw(members, candidates, rng) for _ in range(count)]


def _by_distance(member: Head, others: Sequence[Head], norms: Mapping[Head, float]) -> list[Head]:
    layers = 1 + max(layer for layer, _ in norms)

    def distance(other: Head) -> float:
        depth = abs(other[0] - member[0]) / layers
        size = log((norms[other] + _TINY) / (norms[member] + _TINY))
        return depth + abs(size)

    return sorted(others, key=distance)


def _draw(
    members: Sequence[Head], candidates: Mapping[Head, Sequence[Head]], rng: np.random.Generator
) -> tuple[Head, ...]:
    """One random set; the members are replaced in random order."""
    drawn_heads: list[Head] = []
    for number in rng.permutation(len(members)):
        member = members[number]
        free = [head for head in candidates[member] if head not in drawn_heads]
        if not free:
            continue
        nearest = free[:NEAREST]
        index = int(rng.integers(len(nearest)))
        drawn_heads.append(nearest[index])
    return tuple(sorted(drawn_heads))
