"""Learned relative positions: a vector per distance, added to the keys and to the values."""

from __future__ import annotations

import torch
from einops import einsum
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference.masks import allowed
from headscope.studies.anatomy.reference.scaled_dot_product import Attended, masked_softmax
from headscope.studies.anatomy.reference.shapes import check_sequences, check_width


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
        """What `attend` returns, with the distances taken in; for the arguments see there.

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
        visible = allowed(mask, tuple(scores.shape), causal=causal, device=scores.device)
        pattern = masked_softmax(scores, visible)
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
