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
        scaled = directions * self.gain.to(directions)
        return scaled - scaled.mean(-1, keepdim=True) if self.centred else scaled

    def linear(self, inputs: Float[Tensor, "*_ d_model"]) -> Float[Tensor, "*_ d_model"]:
        """The output without bias and scale."""
        centred = inputs - inputs.mean(-1, keepdim=True) if self.centred else inputs
        return centred * self.gain.to(inputs)

    def scale(
        self, inputs: Float[Tensor, "*_ d_model"], outputs: Float[Tensor, "*_ d_model"]
    ) -> Float[Tensor, "*_"]:
        """S of each token, as the model's own norm applied it."""
        linear, unbiased = self.linear(inputs.float()), outputs.float() - self._bias(outputs)
        return (unbiased * linear).sum(-1) / linear.square().sum(-1).clamp_min(1e-30)

    def _bias(self, like: Tensor) -> Tensor | float:
        return self.bias.to(like).float() if isinstance(self.bias, Tensor) else self.bias


@torch.inference_mode()
def frozen_norm(
    module: nn.Module, inputs: Float[Tensor, "*_ d_model"], outputs: Float[Tensor, "*_ d_model"]
) -> FrozenNorm:
    """A norm as a linear map, found by what it does.

    Args:
        module: the norm.
        inputs: of it on some text.
        outputs: of it on the same text.

    Raises:
        ModelError: it does something else.
    """
    width = inputs.shape[-1]
    generator = torch.Generator().manual_seed(0)
    trial = torch.randn(64, width, generator=generator).to(inputs)
    answer = module(trial)
    answer = (answer[0] if isinstance(answer, tuple) else answer).float()
    module_bias = getattr(module, "bias", None)
    bias = module_bias.detach() if isinstance(module_bias, Tensor) else 0.0
    plain = answer - (bias.float() if isinstance(bias, Tensor) else bias)
    smallest = float("inf")
    for centred in (False, True):
        x = trial.float()
        x = x - x.mean(-1, keepdim=True) if centred else x
        unit = x / x.square().mean(-1, keepdim=True).sqrt()
        # least squares of one gain for each coordinate
        gain = (plain * unit).sum(0) / unit.square().sum(0)
        norm = FrozenNorm(module, gain, bias, centred)
        x, y = inputs.reshape(-1, width).float(), outputs.reshape(-1, width)
        rebuilt = norm.scale(x, y)[:, None] * norm.linear(x) + norm._bias(y)
        off = float((rebuilt - y.float()).norm() / y.float().norm().clamp_min(1e-30))
        if off < TOLERANCE.get(inputs.dtype, 8e-2):
            return norm
        smallest = min(smallest, off)
    raise ModelError(
        f"{type(module).__name__} is no norm by one number of each token (off by {smallest:.2g})"
    )
