"""Sets of heads that are changed together, and random sets that are matched to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import log

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.causal.rerun import CleanRun, Rerunner, TokenRows
from headscope.models.layout.projections import output_matrix

Head = tuple[int, int]
"""A layer and the number of a head in it."""
SETS = 20
"""Random sets that a set is compared with."""
NEAREST = 8
"""Heads most similar to a member, one of which stands in for it in a random set."""
STRATUM = 24
"""Fewest heads of a stratum, from which random sets are drawn."""
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
            norms = written_norms(rerunner.outputs[layer], z[is_token])
            for head, total in enumerate(norms.sum(0).tolist()):
                earlier = totals.get((layer, head), 0.0)
                totals[layer, head] = earlier + total
    return {head: total / tokens for head, total in totals.items()}


def written_norms(
    output: nn.Module, z: Float[Tensor, "token head width"]
) -> Float[Tensor, "token head"]:
    """Norm of what each head writes at each token: z times the head's rows of W_O.

    Args:
        output: W_O of the heads' layer.
        z: outputs of all heads of the layer.
    """
    w_o = output_matrix(output).float()
    by_head = w_o.reshape(z.shape[1], -1, w_o.shape[-1])
    written = torch.einsum("thw,hwm->thm", z.float(), by_head)
    norms: Tensor = written.norm(dim=-1)
    return norms


class TokenSums:
    """Mean of an activation over the tokens of batches, without the first of each row.

    Args:
        by_position: a mean for each position, counted from the ends of the rows; the first token
            counts there.
    """

    def __init__(self, *, by_position: bool = False) -> None:
        self.by_position = by_position
        self._sums = torch.zeros(0)
        self._counts = torch.zeros(0)

    def add(self, rows: TokenRows, values: Float[Tensor, "row position ..."]) -> None:
        """Add the tokens of a batch."""
        if not self.by_position:
            is_token = rows.after_first()
            sums = values[is_token].double().sum(0)[None]
            counts = is_token.sum()[None]
        else:
            from_end = _from_end(rows)
            is_token = from_end >= 0
            width = values.shape[1]
            sums = values.new_zeros(width, *values.shape[2:], dtype=torch.double)
            sums.index_add_(0, from_end[is_token], values[is_token].double())
            counts = torch.bincount(from_end[is_token], minlength=width)
        # a longer batch than any before it has positions of its own
        if len(self._sums) < len(sums):
            longer = sums.new_zeros(sums.shape)
            longer[: len(self._sums)] = self._sums.to(sums) if len(self._sums) else 0
            longer_counts = counts.new_zeros(len(sums))
            longer_counts[: len(self._counts)] = self._counts.to(counts)
            self._sums, self._counts = longer, longer_counts
        self._sums[: len(sums)] += sums
        self._counts[: len(counts)] += counts

    def means(self) -> Float[Tensor, "position ..."]:
        """The means: one, or one for each position from the end."""
        shape = (-1, *[1] * (self._sums.dim() - 1))
        means: Tensor = (self._sums / self._counts.clamp_min(1).view(shape)).float()
        return means


def at_positions(
    means: Float[Tensor, "position ..."], rows: TokenRows
) -> Float[Tensor, "row token ..."]:
    """Means of `TokenSums` at the positions of rows; one row and position if it is one mean."""
    if len(means) == 1:
        return means[None]
    from_end = _from_end(rows).clamp(0, len(means) - 1)
    return means[from_end]


def _from_end(rows: TokenRows) -> Int[Tensor, "row position"]:
    """The number of tokens after each; below 0 for padding."""
    position = torch.arange(rows.tokens.shape[1], device=rows.tokens.device)
    return rows.lengths.to(position.device)[:, None] - 1 - position


def mean_outputs(
    rerunner: Rerunner, batches: Iterable[TokenRows], *, by_position: bool = False
) -> dict[int, Float[Tensor, "position head width"]]:
    """Mean of each head's z over the tokens of all batches; see `TokenSums`."""
    sums: dict[int, TokenSums] = {}
    for rows in batches:
        for layer, z in rerunner.clean(rows).z.items():
            of_layer = sums.setdefault(layer, TokenSums(by_position=by_position))
            of_layer.add(rows, z)
    return {layer: of_layer.means() for layer, of_layer in sums.items()}


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
    candidates = {member: by_distance(member, others, norms) for member in members}
    sets = []
    for _ in range(count):
        drawn_heads: list[Head] = []
        # in random order, because the last members find fewer similar heads that are free
        for number in rng.permutation(len(members)):
            member = members[number]
            free = [head for head in candidates[member] if head not in drawn_heads]
            if not free:
                continue
            nearest = free[:NEAREST]
            index = int(rng.integers(len(nearest)))
            drawn_heads.append(nearest[index])
        sets.append(tuple(sorted(drawn_heads)))
    return sets


def by_distance(head: Head, others: Collection[Head], norms: Mapping[Head, float]) -> list[Head]:
    """Other heads, the most similar in layer and norm of output first; see `matched_sets`."""
    layers = 1 + max(layer for layer, _ in norms)

    def distance(other: Head) -> float:
        depth = abs(other[0] - head[0]) / layers
        size = log((norms[other] + _TINY) / (norms[head] + _TINY))
        return depth + abs(size)

    return sorted(others, key=distance)


def strata(norms: Mapping[Head, float]) -> list[list[Head]]:
    """All heads in groups of similar layer and norm of output, of `STRATUM` heads or more.

    The heads are halved by layer, each half by norm, and so on in turn.

    Args:
        norms: mean norm of the output of every head of the model.
    """
    groups = [sorted(norms)]
    by_norm = False
    while min(map(len, groups)) >= 2 * STRATUM:
        halves = []
        for group in groups:
            ordered = sorted(group, key=norms.__getitem__) if by_norm else sorted(group)
            middle = len(ordered) // 2
            halves += [ordered[:middle], ordered[middle:]]
        groups = halves
        by_norm = not by_norm
    return groups


def exchangeable_sets(
    heads: Collection[Head], norms: Mapping[Head, float], *, count: int, seed: int
) -> list[tuple[Head, ...]]:
    """Random sets with as many heads of each stratum as a set has, its own heads among them.

    If the set was itself drawn from the strata at random, it and these sets can be exchanged, so
    that its rank among them gives a p value (Phipson and Smyth 2010). Sets without its own heads
    would not do: a set that has the one head that matters would then be better than all of them.

    Args:
        heads: the set.
        norms: mean norm of the output of every head of the model.
        count: number of random sets, which are independent of each other.
        seed: draws them.
    """
    rng = np.random.default_rng(seed)
    groups = strata(norms)
    sets = []
    for _ in range(count):
        sampled: list[Head] = []
        for group in groups:
            members = len(set(heads) & set(group))
            picks = rng.choice(len(group), members, replace=False)
            sampled += [group[pick] for pick in picks.tolist()]
        sets.append(tuple(sorted(sampled)))
    return sets
