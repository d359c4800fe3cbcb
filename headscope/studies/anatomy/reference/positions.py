"""Positions: rotations of queries and keys by an angle that grows with them, or a learned vector
per distance, added to the keys and to the values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference.attention import (
    Attended,
    check_sequences,
    check_width,
    masked_softmax,
)


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
        rotated, unrotated = x[..., : self.d_rotary], x[..., self.d_rotary :]
        across, up = rearrange(rotated, "... (two pair) -> two ... pair", two=2)
        angles = self.angles(x.shape[-2], x.device)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.cat([across * cos - up * sin, up * cos + across * sin, unrotated], dim=-1)

    def angles(self, length: int, device: torch.device) -> Float[Tensor, "position pair"]:
        """The angle of each pair at each position, in radians."""
        # 2i / d_rotary; float32 as in the pretrained models, whatever the model's own type
        exponents = torch.arange(0, self.d_rotary, 2, device=device).float() / self.d_rotary
        positions = torch.arange(length, device=device).float()
        return torch.outer(positions, 1.0 / self.base**exponents)


class RelativePositions(nn.Module):
    """Attention that knows how far each key is, by vectors a^K and a^V that are learned.

        score(i, j) = scale · q_i · (k_j + a^K_{j−i})
        output(i)   = Σ_j pattern(i, j) (v_j + a^V_{j−i})

    The vectors are shared by all heads, as in the paper. A distance beyond `max_distance` counts
    as `max_distance`, on either side, unless `clip` is False.

    Args:
        d_head: width of the queries, keys and values of a head.
        max_distance: the largest distance with vectors of its own, 0 or more; each table has
            2 · max_distance + 1 rows, the middle one for a token and itself.
        clip: whether larger distances are read as the largest; if not, they are an error.

    Raises:
        ShapeError: max_distance is negative.

    Source: Shaw et al. 2018, “Self-Attention with Relative Position Representations”, sections
    3.1 to 3.3, equations 3 to 5.
    """

    def __init__(self, d_head: int, *, max_distance: int, clip: bool = True) -> None:
        super().__init__()
        if max_distance < 0:
            raise ShapeError(f"max_distance is {max_distance}, but has to be 0 or more")
        self.d_head, self.max_distance, self.clip = d_head, max_distance, clip
        # as wide as random queries and keys, before they are scaled
        self.keys = nn.Parameter(torch.randn(2 * max_distance + 1, d_head) * d_head**-0.5)
        self.values = nn.Parameter(torch.randn(2 * max_distance + 1, d_head) * d_head**-0.5)

    def forward(
        self,
        query: Float[Tensor, "*_batch _query _d_head"],
        key: Float[Tensor, "*_batch _key _d_head"],
        value: Float[Tensor, "*_batch _key _d_head"],
        *,
        mask: Shaped[Tensor, "*_batch _query _key"] | None = None,
        causal: bool = False,
        scale: float | None = None,
        return_pattern: bool = False,
    ) -> Attended:
        """The result of `attend`, with the distances taken in; for the arguments see there.

        Raises:
            ShapeError: queries, keys, values and mask do not fit together or not d_head; or a
                distance is larger than max_distance and is not to be clipped.
        """
        check_sequences(query, key, value)
        check_width("the query", query, self.d_head)
        check_width("the value", value, self.d_head)
        row = self.rows(query.shape[-2], key.shape[-2])
        # q · (k + a) = q · k + q · a: no key has to be copied for each query
        scores = einsum(query, key, "... query d_head, ... key d_head -> ... query key")
        scores = scores + einsum(
            query, self.keys[row], "... query d_head, query key d_head -> ... query key"
        )
        scores = scores * (self.d_head**-0.5 if scale is None else scale)
        pattern = masked_softmax(scores, mask, causal=causal)
        output = einsum(pattern, value, "... query key, ... key d_head -> ... query d_head")
        output = output + einsum(
            pattern, self.values[row], "... query key, query key d_head -> ... query d_head"
        )
        return Attended(output, pattern if return_pattern else None)

    def rows(self, queries: int, keys: int) -> Int[Tensor, "query key"]:
        """The row of the tables for each query and key: key − query, counted from −max_distance.

        Raises:
            ShapeError: a distance is larger than max_distance and is not to be clipped.

        >>> RelativePositions(4, max_distance=1).rows(1, 3).tolist()
        [[1, 2, 2]]
        """
        longest = max(queries, keys)
        if not self.clip and longest > self.max_distance + 1:
            raise ShapeError(
                f"an input of {longest} positions has distances up to {longest - 1}, but only "
                f"those up to max_distance {self.max_distance} were learned"
            )
        here = torch.arange(queries, device=self.keys.device)
        there = torch.arange(keys, device=self.keys.device)
        distance = there[None, :] - here[:, None]
        return distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
