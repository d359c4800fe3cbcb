"""Rotary positions: queries and keys are turned by an angle that grows with their position."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from headscope.errors import ShapeError


@dataclass(frozen=True)
class Rotary:
    """Turns pairs of features, so that a score depends on the distance and not on the places.

    Feature i of the first half of the turned features and feature i of the second half are one
    point of the plane (Hugging Face's layout; the paper pairs neighbours, which is the same up to
    the order of features). At position p it is turned by

        p · base^(−2i / d_rotary)

    so that (R_p q) · (R_r k) is a function of q, k and p − r.

    Attributes:
        d_rotary: how many features are turned, an even number; those after them are left as they
            are (GPT-NeoX turns a quarter of each head).
        base: the slowest pair turns by about 1/base per position.

    Raises:
        ShapeError: d_rotary is odd or below 2.

    Source: Su et al. 2021, “RoFormer”, section 3.2.2, equations 14 and 15; partial turning:
    Black et al. 2022, “GPT-NeoX-20B”, section 2.1.1.

    >>> turned = Rotary(2)(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    >>> [[round(x, 3) for x in row] for row in turned.tolist()]
    [[1.0, 0.0], [0.54, 0.841]]
    """

    d_rotary: int
    base: float = 10_000.0

    def __post_init__(self) -> None:
        if self.d_rotary < 2 or self.d_rotary % 2:
            raise ShapeError(
                f"rotary positions turn pairs of features: d_rotary is {self.d_rotary}, "
                "but has to be even and at least 2"
            )

    def __call__(
        self, x: Float[Tensor, "*batch position d_head"]
    ) -> Float[Tensor, "*batch position d_head"]:
        """Queries or keys of positions 0, 1, …, each turned by the angles of its position.

        Raises:
            ShapeError: they have fewer features than are to be turned.
        """
        if x.shape[-1] < self.d_rotary:
            raise ShapeError(
                f"{self.d_rotary} features are to be turned, but d_head is {x.shape[-1]}"
            )
        turned, left = x[..., : self.d_rotary], x[..., self.d_rotary :]
        across, up = rearrange(turned, "... (two pair) -> two ... pair", two=2)
        angles = self.angles(x.shape[-2], x.device)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.cat([across * cos - up * sin, up * cos + across * sin, left], dim=-1)

    def angles(self, length: int, device: torch.device) -> Float[Tensor, "position pair"]:
        """The angle of each pair at each position, in radians."""
        # 2i / d_rotary; float32 as in the pretrained models, whatever the model's own type
        exponents = torch.arange(0, self.d_rotary, 2, device=device).float() / self.d_rotary
        positions = torch.arange(length, device=device).float()
        return torch.outer(positions, 1.0 / self.base**exponents)
