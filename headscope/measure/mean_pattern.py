"""A head's mean pattern: its first tokens' attention, averaged over the profiled windows."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.tally import SIDE, Profile, grained


def add_mean(
    profile: Profile, layer: int, window: Window, first: int, own: Float[Tensor, "head query key"]
) -> None:
    """Add the rows of a window's first `SIDE` queries to the sums.

    Of a target on its source the queries are counted from where the target begins.

    Args:
        profile: the sums.
        layer: its place among those that are read.
        window: the text.
        first: position of the first row in the window.
        own: attention of the rows on the window's keys from its beginning on.
    """
    row = first - window.source
    count = min(SIDE - row, own.shape[1])
    if count <= 0:
        return
    part = own[:, :count, : min(SIDE, window.source or SIDE)].double().cpu().numpy()
    sums = profile.mean[layer].reshape(-1, SIDE, SIDE)  # a view: the sums are added in place
    sums[:, row : row + count, : part.shape[-1]] += grained(part)
    if layer == 0:
        profile.mean_queries[row : row + count] += 1


def mean_patterns(profile: Profile) -> Float[ndarray, "layer head query key"] | None:
    """The mean attention of each query position on each key position, in [0, 1].

    The first token's own row, which can only be 1, is 0, as are positions that no window reached.
    A row sums to 1 over the keys that are there: of an encoder to less. The size is `SIDE` each
    way. None where nothing was profiled, as without text.
    """
    if not profile.mean_queries.any():
        return None
    layers, heads = profile.entropy.shape
    sums = profile.mean.reshape(layers, heads, SIDE, SIDE)
    return np.asarray(sums / np.maximum(profile.mean_queries, 1)[:, None])
