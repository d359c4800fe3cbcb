"""A norm with its scale frozen: a linear map times one number of each token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.errors import ModelError

TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 8e-2}
"""How far a norm's output may be from gain × input × one number, as a share of its length."""


@dataclass(frozen=True, eq=False)
class FrozenNorm:
    """A norm y = s(x) · gain ⊙ (x − mean) + bias, whose s is one number of each token.

    RMSNorm subtracts no mean. Gains that count from 1 (Gemma) have the 1 added already.
    """

    module: nn.Module
    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"] | float
    centred: bool

    def pulled_back(self, directions: Float[Tensor, "*_ d_model"]) -> Float[Tensor, "*_ d_model"]:
        """Directions behind the norm as directions before it: ⟨y − bias, d⟩ = s · ⟨x, result⟩."""
        found = directions * self.gain.to(directions)
        return found - found.mean(-1, keepdim=True) if self.centred else found

    def scale(
        self, before: Float[Tensor, "*_ d_model"], behind: Float[Tensor, "*_ d_model"]
    ) -> Float[Tensor, "*_"]:
        """S of each token, as the model's own norm applied it."""
        straight, own = self._straight(before.float()), behind.float() - self._bias(behind)
        return (own * straight).sum(-1) / straight.square().sum(-1).clamp_min(1e-30)

    def _straight(self, before: Tensor) -> Tensor:
        centred = before - before.mean(-1, keepdim=True) if self.centred else before
        return centred * self.gain.to(before)

    def _bias(self, like: Tensor) -> Tensor | float:
        return self.bias.to(like).float() if isinstance(self.bias, Tensor) else self.bias


@torch.inference_mode()
def frozen_norm(
    module: nn.Module, before: Float[Tensor, "*_ d_model"], behind: Float[Tensor, "*_ d_model"]
) -> FrozenNorm:
    """A norm as a linear map, found by what it does.

    Args:
        module: the norm.
        before: what went into it of some text.
        behind: what came out.

    Raises:
        ModelError: it does something else.
    """
    width = before.shape[-1]
    generator = torch.Generator().manual_seed(0)
    trial = torch.randn(64, width, generator=generator).to(before)
    answer = module(trial)
    answer = (answer[0] if isinstance(answer, tuple) else answer).float()
    own_bias = getattr(module, "bias", None)
    bias = own_bias.detach() if isinstance(own_bias, Tensor) else 0.0
    plain = answer - (bias.float() if isinstance(bias, Tensor) else bias)
    least = float("inf")
    for centred in (False, True):
        x = trial.float()
        x = x - x.mean(-1, keepdim=True) if centred else x
        unit = x / x.square().mean(-1, keepdim=True).sqrt()
        # least squares of one gain for each coordinate
        gain = (plain * unit).sum(0) / unit.square().sum(0)
        found = FrozenNorm(module, gain, bias, centred)
        x, y = before.reshape(-1, width).float(), behind.reshape(-1, width)
        rebuilt = found.scale(x, y)[:, None] * found._straight(x) + found._bias(y)
        off = float((rebuilt - y.float()).norm() / y.float().norm().clamp_min(1e-30))
        if off < TOLERANCE.get(before.dtype, 8e-2):
            return found
        least = min(least, off)
    raise ModelError(
        f"{type(module).__name__} is no norm by one number of each token (off by {least:.2g})"
    )
