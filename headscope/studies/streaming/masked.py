"""A model some of whose key/value heads stream, within transformers' attention interface.

Another function of attention looks on: what streaming would change is measured layer by layer in
the model as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headscope.models.engines.instead import Asked, Output, attending
from headscope.models.engines.kernels import attend
from headscope.models.engines.rows import Beside, Sums, Values
from headscope.studies.streaming.kept import Kept, attend_kept


@dataclass(frozen=True, eq=False)
class Both:
    """A layer's attention as it is and as if every head streamed."""

    output: Values
    streamed: Values
    far: Sums
    """The mass that each query puts on keys that a streaming head would not keep, in [0, 1]."""
    seen: int
    """Keys that a query sees at most: fewer than there are where the layer has a window itself."""


OnBoth = Callable[[int, Both], None]


@dataclass(frozen=True, eq=False)
class _Streaming:
    heads: Mapping[int, Sequence[int]]
    """By layer the key/value heads that stream."""
    shared: int
    """Key/value heads of a layer."""
    kept: Kept
    look: OnBoth | None = None


@contextmanager
def streaming(
    network: Any, heads: Mapping[int, Sequence[int]], shared: int, kept: Kept
) -> Iterator[None]:
    """Within this context these key/value heads keep sinks and a recent window only.

    Args:
        network: the network of a fused engine.
        heads: by layer, which of its key/value heads; all query heads of a group go with them.
        shared: how many key/value heads a layer has.
        kept: what they keep.
    """
    with attending(network, partial(_attention, _Streaming(heads, shared, kept))):
        yield


@contextmanager
def looking_on(network: Any, kept: Kept, look: OnBoth) -> Iterator[None]:
    """Within this context the model runs as it is, and `look` is told what streaming changes."""
    with attending(network, partial(_attention, _Streaming({}, 1, kept, look))):
        yield


def _attention(streaming: _Streaming, asked: Asked) -> Output:
    """Over kept keys for heads that stream, as ever for others."""
    query, key, value = asked.query, asked.key, asked.value
    scale, beside = asked.scale, asked.beside
    groups = sorted(streaming.heads.get(asked.layer, ()))
    if len(groups) == streaming.shared and groups:
        output, _ = attend_kept(query, key, value, scale, beside, streaming.kept)
        return output.transpose(1, 2).contiguous()
    output, normaliser = attend(query, key, value, scale, beside)
    if streaming.look is not None:
        streamed, sums = attend_kept(query, key, value, scale, beside, streaming.kept)
        far = (1 - (sums - normaliser).exp()).clamp(0, 1)
        streaming.look(asked.layer, Both(output, streamed, far, _seen(beside, key.shape[2])))
    if groups:
        own = _query_heads(groups, query.shape[1] // streaming.shared)
        keys, values = (_of(x, groups, own, streaming.shared) for x in (key, value))
        few = _beside(beside, own)
        output = output.clone()
        output[:, own] = attend_kept(query[:, own], keys, values, scale, few, streaming.kept)[0]
    return output.transpose(1, 2).contiguous()


def _query_heads(groups: Sequence[int], size: int) -> list[int]:
    return [head for group in groups for head in range(group * size, (group + 1) * size)]


def _of(keys: Tensor, groups: Sequence[int], own: Sequence[int], shared: int) -> Tensor:
    """Keys or values of some groups; some layouts hand them on once for every query head."""
    return keys[:, list(groups) if keys.shape[1] == shared else list(own)]


def _beside(beside: Beside, own: Sequence[int]) -> Beside:
    """What stands beside the scores of some query heads."""
    bias, sink = beside.bias, beside.sink
    if bias is not None and bias.shape[1] > 1:
        bias = bias[:, list(own)]
    return beside._replace(bias=bias, sink=None if sink is None else sink[list(own)])


def _seen(beside: Beside, length: int) -> int:
    if beside.bias is None:
        return length
    return int((beside.bias > -torch.inf).sum(-1).max())
