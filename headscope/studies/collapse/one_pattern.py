"""One pattern for all heads of a layer, within transformers' attention interface.

Each head keeps its own values and its own output matrix; only where it looks is no longer its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.errors import ChoiceError
from headscope.models.engines import interface
from headscope.models.engines.modules import attend_by
from headscope.models.engines.rows import Values, pattern, seen_keys

NAME = "headscope-collapse"

_Pattern = Float[Tensor, "batch head query key"]
_One = Float[Tensor, "batch 1 query key"]
_Seen = Bool[Tensor, "_ _ query key"]
_Heads = Float[Tensor, "batch _ position width"]


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
    global _collapse
    if how not in WAYS:
        raise ChoiceError("way to collapse", how, WAYS)
    _collapse = _Collapse(frozenset(layers), WAYS[how])
    attend_by(network, NAME)
    try:
        yield
    finally:
        attend_by(network, interface.NAME)
        _collapse = None


@dataclass(frozen=True)
class _Collapse:
    layers: frozenset[int]
    way: _Way


_collapse: _Collapse | None = None


def attention(
    module: nn.Module,
    query: _Heads,
    key: _Heads,
    value: Values,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Float[Tensor, "batch position head _"], None]:
    """Attention for transformers: by one pattern in collapsed layers, as ever in others."""
    layer: Any = module.layer_idx
    if _collapse is None or layer not in _collapse.layers:
        return interface.attention(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    beside = interface.beside_of(module, query, key, attention_mask, more)
    own = pattern(query, key, scale, beside)
    mixed = _collapse.way(own, seen_keys(query, beside)).to(value.dtype) @ value
    # grouped query heads share values: each gets those of its group
    mixed = mixed.repeat_interleave(query.shape[1] // value.shape[1], 1)
    return mixed.transpose(1, 2).contiguous(), None


interface.register(NAME, attention)
