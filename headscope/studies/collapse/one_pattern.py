"""One pattern for all heads of a layer, within transformers' attention interface.

Each head keeps its own values and its own output matrix; only where it looks is no longer its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface

from headscope.errors import ChoiceError
from headscope.models.engines import fused

NAME = "headscope-collapse"

_Pattern = Float[Tensor, "batch head query key"]
_One = Float[Tensor, "batch 1 query key"]
_Heads = Float[Tensor, "batch _ position width"]


def _mean(pattern: _Pattern) -> _One:
    return pattern.mean(1, keepdim=True)


def _first(pattern: _Pattern) -> _One:
    return pattern[:, :1]


def _uniform(pattern: _Pattern) -> _One:
    seen = torch.ones_like(pattern[:, :1]).tril()
    return seen / seen.sum(-1, keepdim=True)


WAYS: Mapping[str, Callable[[_Pattern], _One]] = {
    "mean": _mean,
    "head 0": _first,
    "uniform": _uniform,
}
"""The one pattern that all heads of a layer get, from their own; rows sum to 1."""


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
    network.set_attn_implementation(NAME)
    try:
        yield
    finally:
        network.set_attn_implementation(fused.NAME)
        _collapse = None


@dataclass(frozen=True)
class _Collapse:
    layers: frozenset[int]
    way: Callable[[_Pattern], _One]


_collapse: _Collapse | None = None


def attention(
    module: nn.Module,
    query: _Heads,
    key: _Heads,
    value: _Heads,
    mask: Tensor | None,
    *,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Float[Tensor, "batch position head width"], None]:
    """Causal attention for transformers: by one pattern in collapsed layers, as ever in others."""
    layer: Any = module.layer_idx
    if _collapse is None or layer not in _collapse.layers:
        return fused.attention(module, query, key, value, mask, scaling=scaling, **more)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    pattern = _collapse.way(_pattern(query, key, scale)).to(value.dtype)
    mixed = pattern @ value
    # grouped query heads share values: each gets those of its group
    mixed = mixed.repeat_interleave(query.shape[1] // value.shape[1], 1)
    return mixed.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attention)


def _pattern(query: _Heads, key: _Heads, scale: float) -> _Pattern:
    """Every head's own pattern, in single precision at least."""
    exact = torch.promote_types(query.dtype, torch.float32)
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1).to(exact)
    scores = query.to(exact) * scale @ key.transpose(-1, -2)
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1)
