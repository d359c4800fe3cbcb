"""One pattern for all heads of a layer, within transformers' attention interface.

Each head keeps its own values and its own output matrix; only where it looks is no longer its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from headscope.errors import ChoiceError
from headscope.models.engines.instead import Asked, Output, attending
from headscope.models.engines.rows import pattern, seen_keys

_Pattern = Float[Tensor, "batch head query key"]
_One = Float[Tensor, "batch 1 query key"]
_Seen = Bool[Tensor, "_ _ query key"]


def _mean(own: _Pattern, seen: _Seen) -> _One:
    return own.mean(1, keepdim=True)


def _first(own: _Pattern, seen: _Seen) -> _One:
    return own[:, :1]


def _uniform(own: _Pattern, seen: _Seen) -> _One:
    every = seen[:, :1].to(own.dtype).expand(len(own), -1, -1, -1)
    return every / every.sum(-1, keepdim=True)


_Way = Callable[[_Pattern, _Seen], _One]
WAYS: Mapping[str, _Way] = {
    "mean": _mean,
    "head 0": _first,
    "uniform": _uniform,
}
"""The one pattern that all heads of a layer get, from their own and the keys that are seen; rows
sum to 1, or to what the heads' sinks leave."""


@contextmanager
def collapsed(network: Any, layers: set[int], how: str) -> Iterator[None]:
    """Within this context the heads of these layers attend by one pattern.

    Args:
        network: the network of a fused engine.
        layers: which layers; their patterns are made from their own queries and keys, and in
            a layer above another collapsed one from what that one wrote.
        how: one of `WAYS`.

    Raises:
        ChoiceError: no such way.
    """
    if how not in WAYS:
        raise ChoiceError("way to collapse", how, WAYS)
    with attending(network, partial(_attention, frozenset(layers), WAYS[how])):
        yield


def _attention(layers: frozenset[int], way: _Way, asked: Asked) -> Output:
    """By one pattern in collapsed layers, as ever in others."""
    if asked.layer not in layers:
        return asked.as_ever()
    query, value, beside = asked.query, asked.value, asked.beside
    own = pattern(query, asked.key, asked.scale, beside)
    mixed = way(own, seen_keys(query, beside)).to(value.dtype) @ value
    # grouped query heads share values: each gets those of its group
    mixed = mixed.repeat_interleave(query.shape[1] // value.shape[1], 1)
    return mixed.transpose(1, 2).contiguous()
