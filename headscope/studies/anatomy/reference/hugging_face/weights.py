"""Copying weights, and reading rotary positions from a configuration."""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headscope.errors import ModelError, ShapeError
from headscope.studies.anatomy.reference.rotary import Rotary


def fill(
    linear: nn.Linear, weight: Float[Tensor, "out in"], bias: Float[Tensor, " out"] | None
) -> None:
    """Give a linear map a copy of a weight and a bias, in their type and on their device.

    Raises:
        ShapeError: they are of other sizes than the map.
    """
    came = [None if x is None else tuple(x.shape) for x in (weight, bias)]
    asked = [None if x is None else tuple(x.shape) for x in (linear.weight, linear.bias)]
    if came != asked:
        raise ShapeError(
            f"the configuration asks for a weight of {asked[0]} and a bias of {asked[1]}, but the "
            f"layer has {came[0]} and {came[1]}; is it another model's configuration?"
        )
    linear.weight = _copy(weight)
    if bias is not None:
        linear.bias = _copy(bias)


def unpack(conv: Any, parts: int) -> list[tuple[Tensor, Tensor]]:
    """`(weight, bias)` of each of the maps that lie side by side in GPT-2's Conv1D.

    It holds its weight as [in out], the transpose of nn.Linear's.
    """
    weights = rearrange(conv.weight, "d_in (part d_out) -> part d_out d_in", part=parts)
    biases = rearrange(conv.bias, "(part d_out) -> part d_out", part=parts)
    return list(zip(weights, biases, strict=True))


def plain_rotary(config: Any, d_rotary: int) -> Rotary:
    """The rotary positions of a configuration.

    Raises:
        ModelError: they are stretched for longer texts than the model was first trained on.
    """
    parameters = config.rope_parameters
    kind = parameters["rope_type"]
    if kind != "default":
        raise ModelError(f"rotary positions of type {kind!r}; only the plain ones are written out")
    return Rotary(d_rotary, base=parameters["rope_theta"])


def _copy(x: Tensor) -> nn.Parameter:
    return nn.Parameter(x.detach().clone(memory_format=torch.contiguous_format))
