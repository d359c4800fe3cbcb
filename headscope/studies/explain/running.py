"""The model runs on rules: within transformers' attention interface, heads attend as rules say.

Values and output matrices stay the heads' own. What a rule says comes from the text alone; its
content term, where it has one, comes from the layer's input as it then is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.models.engines.instead import Asked, Output, attending
from headscope.models.engines.modules import by_number
from headscope.models.engines.rows import Beside, pattern, seen_keys
from headscope.studies.explain.reading import attention_input

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


@contextmanager
def running(network: Any, heads: Mapping[int, Sequence[int]], make: MakePattern) -> Iterator[None]:
    """Within this context these heads attend by given patterns.

    Args:
        network: the network of a fused engine.
        heads: by layer, which heads.
        make: the patterns of all heads of a layer, for the batch that is run.
    """
    asked = _Running(heads, make)
    with ExitStack() as within:
        for layer, module in by_number(network).items():
            if layer in heads:
                handle = module.register_forward_pre_hook(_keep(asked, layer), with_kwargs=True)
                within.callback(handle.remove)
        within.enter_context(attending(network, partial(_attention, asked)))
        yield


def _keep(running: _Running, layer: int) -> Callable[..., None]:
    def hook(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        running.inputs[layer] = attention_input(given, named)

    return hook


def _attention(running: _Running, asked: Asked) -> Output:
    """By rules where heads have them, as ever elsewhere."""
    query, value, layer = asked.query, asked.value, asked.layer
    heads = list(running.heads.get(layer, ()))
    if len(heads) < query.shape[1]:  # some heads stay as they are
        own = asked.as_ever()
    else:
        own = query.new_empty(query.shape[0], query.shape[2], query.shape[1], value.shape[3])
    if not heads:
        return own
    made = running.make(layer, running.inputs.pop(layer))[:, heads]
    beside = asked.beside
    if beside.bias is not None or beside.sink is not None:
        patterns = pattern(query, asked.key, asked.scale, beside)
        made = _within(made, query, patterns[:, heads], beside)
    made = made.to(value.dtype)
    # grouped query heads share values: each gets those of its group
    group = query.shape[1] // value.shape[1]
    mixed = (made @ value[:, [head // group for head in heads]]).transpose(1, 2)
    own[:, :, heads] = mixed
    return own


def _within(made: Pattern, query: _Heads, own: Pattern, beside: Beside) -> Pattern:
    """The part of a made pattern that a head can see, with the share that its sink leaves."""
    made = made * seen_keys(query, beside)[:, :1]
    whole = made.sum(-1, keepdim=True).clamp_min(torch.finfo(made.dtype).tiny)
    return made / whole * own.sum(-1, keepdim=True)
