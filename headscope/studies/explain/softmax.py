"""A rule's arithmetic: softmax over weighed features, its divergence, and Newton's method; and
heads side by side, as work on one is many small steps, which cores share badly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

RIDGE = 1e-4
"""Penalty per row on squared weights: a feature that a head never looks at needs no −∞."""
WEIGHT_LIMIT = 12.0
"""Largest weight: e to this power is past what single precision tells from 1."""
STEPS = 12


@dataclass(frozen=True, eq=False)
class Target:
    """A head's attention on some rows, and what does not depend on the rule."""

    attention: Float[Tensor, "row key"]
    seen: Bool[Tensor, "row key"]
    constant: float
    """Σ p ln p over all cells."""

    @classmethod
    def of(cls, attention: Float[Tensor, "row key"], seen: Bool[Tensor, "row key"]) -> Target:
        """The attention with its negative entropy."""
        return cls(attention, seen, float(-torch.special.entr(attention).sum(dtype=torch.float64)))

    def __len__(self) -> int:
        return len(self.attention)


def log_rule(
    logits: Float[Tensor, "*head row key"], seen: Bool[Tensor, "row key"]
) -> Float[Tensor, "*head row key"]:
    """The logarithm of the rule's pattern, −∞ at keys that are not seen."""
    return logits.masked_fill(~seen, -torch.inf).log_softmax(-1)


def kl_divergences(
    attention: Float[Tensor, "*#head row key"], logs: Float[Tensor, "*#head row key"]
) -> Float[Tensor, "*_ row"]:
    """KL(attention ‖ rule) of each row in nats, at least 0; one rule may serve all heads.

    >>> even = torch.full((1, 2), 0.5)
    >>> kl_divergences(even, even.log()).tolist()
    [0.0]
    """
    negative_entropy = -torch.special.entr(attention)
    cross = torch.where(attention > 0, attention * logs, 0)
    divergence: Tensor = (negative_entropy - cross).sum(-1)
    return divergence


@dataclass(frozen=True, eq=False)
class Fitted:
    """Weights, and where the objective curves around them."""

    weights: Float[Tensor, " feature"]
    inverse: Float[Tensor, "feature feature"]
    """Of the Hessian of the summed divergence with its penalty."""
    loss: float
    rule: Float[Tensor, "row key"]
    """The pattern on the rows of the fit."""


def newton(
    target: Target,
    values: Float[Tensor, "feature row key"],
    weights: Float[Tensor, " feature"],
    *,
    offset: Float[Tensor, "row key"] | None = None,
    steps: int = STEPS,
    tolerance: float = 1e-4,
) -> Fitted:
    """Least Σ KL(attention ‖ rule) over weights of features, by damped Newton steps.

    The objective is convex; a step that does not lower it is halved. In the units of `weights`:
    natural logarithms of odds.

    Args:
        target: the head's attention on the rows of the fit.
        values: each feature there, 0 where it does not hold.
        weights: where to begin.
        offset: logits that stay as they are.
        steps: most steps.
        tolerance: nats a row that a step must gain to go on.
    """
    rows, flat = len(target), values.flatten(1)
    target_mass = flat @ target.attention.flatten()
    penalty = RIDGE * rows
    start = torch.zeros_like(target.attention) if offset is None else offset
    base = start.masked_fill(~target.seen, -torch.inf).flatten()
    fixed = 0.0 if offset is None else float((offset * target.attention).sum())

    def at(weights: Tensor) -> tuple[float, Tensor]:
        logits = torch.addmv(base, flat.T, weights).view_as(target.attention)
        largest = logits.amax(-1, keepdim=True)
        rule = logits.sub_(largest).exp_()
        total = rule.sum(-1, keepdim=True)
        logs = float(total.log().add_(largest).sum(dtype=torch.float64))
        loss = logs - float(weights @ target_mass) - fixed
        loss += target.constant + penalty / 2 * float(weights @ weights)
        return loss, rule.div_(total)

    loss, rule = at(weights)
    eye = torch.eye(len(weights), device=flat.device)
    inverse = eye
    for _ in range(steps):
        weighed = values * rule
        mean = weighed.sum(-1)
        gradient = mean.sum(-1) - target_mass + penalty * weights
        hessian = weighed.flatten(1) @ flat.T - mean @ mean.T + (penalty + 1e-3) * eye
        inverse = torch.linalg.inv(hessian.double()).float()
        step, size = inverse @ gradient, 1.0
        while size > 1e-3:
            tried = (weights - size * step).clamp(-WEIGHT_LIMIT, WEIGHT_LIMIT)
            new, new_rule = at(tried)
            if new <= loss:
                break
            size /= 4
        else:
            break
        gained = loss - new
        weights, loss, rule = tried, new, new_rule
        if gained < tolerance * rows:
            break
    return Fitted(weights, inverse, loss, rule)


def nested(
    target: Target, values: Float[Tensor, "term row key"], fitted: Fitted, sizes: Sequence[int]
) -> Iterator[tuple[list[int], Float[Tensor, " kept"]]]:
    """Yields smaller rules, the largest first: the features that remain, and their weights.

    What costs least by the objective's curvature goes, one feature at a time, as the others move
    to make up for it (the "optimal brain surgeon" of Hassibi & Stork 1993); each rule that is
    given is fitted again.

    Args:
        target: the head's attention on the rows of the fit.
        values: the rule's features there.
        fitted: the whole rule.
        sizes: how many features to keep; those that are no fewer than the rule's give nothing.
    """
    features, weights, inverse = list(range(len(values))), fitted.weights, fitted.inverse
    while len(features) > min(sizes, default=len(features)):
        least = int((weights**2 / inverse.diagonal()).argmin())
        inverse_column = inverse[:, least] / inverse[least, least]
        remaining = [i for i in range(len(features)) if i != least]
        weights = (weights - inverse_column * weights[least])[remaining]
        inverse = (inverse - torch.outer(inverse_column, inverse[least]))[remaining][:, remaining]
        features = [features[i] for i in remaining]
        if len(features) in sizes:
            again = newton(target, values[features], weights, steps=3, tolerance=1e-3)
            weights, inverse = again.weights, again.inverse
            yield features, weights


_Result = TypeVar("_Result")


def map_heads(work: Callable[[int], _Result], heads: int) -> list[_Result]:
    """Results of the work for each head, as many at a time as torch may use cores.

    Meanwhile a step of torch has one core.

    >>> map_heads(lambda head: head * 2, 3)
    [0, 2, 4]
    """

    def alone(head: int) -> _Result:
        with torch.inference_mode():  # each thread has its own mode
            return work(head)

    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if cores == 1 or heads == 1:
            return [alone(head) for head in range(heads)]
        return list(_pool(cores).map(alone, range(heads)))
    finally:
        torch.set_num_threads(cores)


@cache
def _pool(cores: int) -> ThreadPoolExecutor:
    """The same threads for every layer: each new one would keep memory of its own."""
    return ThreadPoolExecutor(cores)
