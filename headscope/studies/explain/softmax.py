"""Softmax of a feature model, its divergence from a head, and Newton's method."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

RIDGE = 1e-4
"""Penalty per row on squared weights, so that a feature without attention has a finite weight."""
WEIGHT_LIMIT = 12.0
"""Largest absolute weight in logits: a factor of 160,000 between two keys."""


def log_pattern(
    logits: Float[Tensor, "*head row key"], seen: Bool[Tensor, "row key"]
) -> Float[Tensor, "*head row key"]:
    """Logarithm of the model's pattern; −∞ at keys that are not seen."""
    return logits.masked_fill(~seen, -torch.inf).log_softmax(-1)


def kl_divergences(
    attention: Float[Tensor, "*#head row key"], logs: Float[Tensor, "*#head row key"]
) -> Float[Tensor, "*_ row"]:
    """KL(attention ‖ pattern) of each row in nats, ≥ 0; one model may serve all heads.

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
    """Fitted weights in logits, with the curvature of the objective there."""

    weights: Float[Tensor, " feature"]
    inverse: Float[Tensor, "feature feature"]
    """Inverse Hessian of the summed divergence with its penalty."""
    loss: float
    pattern: Float[Tensor, "row key"]
    """The feature model's pattern on the fitted rows."""


def newton(
    attention: Float[Tensor, "row key"],
    seen: Bool[Tensor, "row key"],
    values: Float[Tensor, "feature row key"],
    weights: Float[Tensor, " feature"],
    *,
    steps: int,
    tolerance: float = 1e-4,
) -> Fitted:
    """Minimise Σ KL(attention ‖ pattern) over the weights of features, by damped Newton steps.

    The objective is convex; a step that does not lower it is divided by 4.

    Args:
        attention: the head's attention on the fitted rows.
        seen: mask of the keys that their queries see.
        values: features there, 0 if one does not hold.
        weights: initial weights.
        steps: largest number of steps.
        tolerance: nats per row below which a step is the last.
    """
    # Σ KL is a constant, minus the mass of each feature, plus log-sum-exp
    rows, flat = len(attention), values.flatten(1)
    target_mass = flat @ attention.flatten()
    negative_entropy = float(-torch.special.entr(attention).sum(dtype=torch.float64))
    penalty = RIDGE * rows
    base = torch.zeros_like(attention).masked_fill(~seen, -torch.inf).flatten()

    def at(weights: Tensor) -> tuple[float, Tensor]:
        logits = torch.addmv(base, flat.T, weights).view_as(attention)
        largest = logits.amax(-1, keepdim=True)
        pattern = logits.sub_(largest).exp_()
        total = pattern.sum(-1, keepdim=True)
        logs = float(total.log().add_(largest).sum(dtype=torch.float64))
        loss = logs - float(weights @ target_mass)
        loss += negative_entropy + penalty / 2 * float(weights @ weights)
        return loss, pattern.div_(total)

    loss, pattern = at(weights)
    eye = torch.eye(len(weights), device=flat.device)
    inverse = eye
    # damped: a step that does not lower the loss is shortened
    for _ in range(steps):
        weighed = values * pattern
        mean = weighed.sum(-1)
        gradient = mean.sum(-1) - target_mass + penalty * weights
        hessian = weighed.flatten(1) @ flat.T - mean @ mean.T + (penalty + 1e-3) * eye
        inverse = torch.linalg.inv(hessian.double()).float()
        step, size = inverse @ gradient, 1.0
        while size > 1e-3:
            tried = (weights - size * step).clamp(-WEIGHT_LIMIT, WEIGHT_LIMIT)
            new, new_pattern = at(tried)
            if new <= loss:
                break
            size /= 4
        else:
            break
        gained = loss - new
        weights, loss, pattern = tried, new, new_pattern
        if gained < tolerance * rows:
            break
    return Fitted(weights, inverse, loss, pattern)


_Result = TypeVar("_Result")


def map_heads(work: Callable[[int], _Result], heads: int) -> list[_Result]:
    """Results for each head, on one thread per core: torch shares steps this small badly.

    >>> map_heads(lambda head: head * 2, 3)
    [0, 2, 4]
    """
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(cores) as pool:
            return list(pool.map(torch.inference_mode()(work), range(heads)))
    finally:
        torch.set_num_threads(cores)
