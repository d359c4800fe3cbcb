"""The model runs on rules: within transformers' attention interface, heads attend as rules say.

Values and output matrices stay the heads' own. What a rule says comes from the text alone; its
content term, where it has one, comes from the layer's input as it then is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.models.engines import interface
from headscope.models.engines.modules import attend_by, by_number
from headscope.models.engines.rows import Beside, Values, pattern, seen_keys
from headscope.studies.explain.reading import attention_input

NAME = "headscope-explain"

_Heads = Float[Tensor, "batch _ position width"]
Pattern = Float[Tensor, "batch head query key"]
MakePattern = Callable[[int, Tensor], Pattern]
"""From a layer and its input to the patterns of all its heads."""


@dataclass
class _Running:
    """What is replaced, by layer the heads, and by what."""

    heads: Mapping[int, Sequence[int]]
    make: MakePattern
    inputs: dict[int, Tensor] = field(default_factory=dict)


_running: _Running | None = None


@contextmanager
def running(network: Any, heads: Mapping[int, Sequence[int]], make: MakePattern) -> Iterator[None]:
    """Within this context these heads attend by given patterns.

    Args:
        network: the network of a fused engine.
        heads: by layer, which heads.
        make: the patterns of all heads of a layer, for the batch that is run.
    """
    global _running
    _running = _Running(heads, make)
    with ExitStack() as hooks:
        for layer, module in by_number(network).items():
            if layer in heads:
                handle = module.register_forward_pre_hook(_keep(layer), with_kwargs=True)
                hooks.callback(handle.remove)
        attend_by(network, NAME)
        try:
            yield
        finally:
            attend_by(network, interface.NAME)
            _running = None


def _keep(layer: int) -> Callable[..., None]:
    def hook(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if _running is not None:
            _running.inputs[layer] = attention_input(given, named)

    return hook


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
    """Attention for transformers: by rules where heads have them, as ever elsewhere."""
    layer: Any = module.layer_idx
    heads = [] if _running is None else list(_running.heads.get(layer, ()))
    if _running is None or len(heads) < query.shape[1]:  # some heads stay as they are
        own, _ = interface.attention(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )
    else:
        own = query.new_empty(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
    if _running is None or not heads:
        return own, None
    made = _running.make(layer, _running.inputs.pop(layer))[:, heads]
    beside = interface.beside_of(module, query, key, attention_mask, more)
    if beside.bias is not None or beside.sink is not None:
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        made = _within(made, query, pattern(query, key, scale, beside)[:, heads], beside)
    made = made.to(value.dtype)
    # grouped query heads share values: each gets those of its group
    group = query.shape[1] // value.shape[1]
    mixed = (made @ value[:, [head // group for head in heads]]).transpose(1, 2)
    own[:, :, heads] = mixed
    return own, None


interface.register(NAME, attention)


def _within(made: Pattern, query: _Heads, own: Pattern, beside: Beside) -> Pattern:
    """The part of a made pattern that a head can see, with the share that its sink leaves."""
    made = made * seen_keys(query, beside)[:, :1]
    whole = made.sum(-1, keepdim=True).clamp_min(torch.finfo(made.dtype).tiny)
    return made / whole * own.sum(-1, keepdim=True)
