"""Smaller rules of a head, each a part of the next: what it loses feature by feature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.studies.explain.softmax import Fitted, Target, newton

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48)
"""Features of the smaller rules."""


def sizes_below(features: int) -> list[int]:
    """The sizes of smaller rules, where one of so many features is asked for.

    >>> sizes_below(8)
    [1, 2, 4]
    """
    return [size for size in SIZES if size < features]


def nested(
    target: Target,
    values: Float[Tensor, "term row key"],
    fitted: Fitted,
    sizes: Sequence[int],
) -> Iterator[tuple[list[int], Float[Tensor, " kept"]]]:
    """Of a rule smaller ones, the largest first: which features are kept, and their weights.

    What costs least by the objective's curvature goes, one feature at a time, as the others move
    to make up for it (the "optimal brain surgeon" of Hassibi & Stork 1993); each rule that is
    given is fitted again.

    Args:
        target: the head's attention on the rows of the fit.
        values: the rule's features there.
        fitted: the whole rule.
        sizes: how many features to keep; those that are no fewer than the rule's give nothing.
    """
    kept, weights, inverse = list(range(len(values))), fitted.weights, fitted.inverse
    while len(kept) > min(sizes, default=len(kept)):
        least = int((weights**2 / inverse.diagonal()).argmin())
        own = inverse[:, least] / inverse[least, least]
        rest = [i for i in range(len(kept)) if i != least]
        weights = (weights - own * weights[least])[rest]
        inverse = (inverse - torch.outer(own, inverse[least]))[rest][:, rest]
        kept = [kept[i] for i in rest]
        if len(kept) in sizes:
            again = newton(target, values[kept], weights, steps=3, tolerance=1e-3)
            weights, inverse = again.weights, again.inverse
            yield kept, weights
