"""A short text and the model's own eager attention on it: an engine must show the same."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.errors import ModelError
from headscope.models.engines.engine import Engine, stream_patterns
from headscope.models.engines.modules import attention_layers
from headscope.models.layout import Layout

TOKENS = 48
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far a probability may be from that of the model's own eager attention. Scores of several
hundreds are rounded by more: such a model is read by its own softmax instead."""


@dataclass(frozen=True)
class Probe:
    """Tokens, and each layer's pattern on them before an engine touches the model."""

    tokens: Int[Tensor, "one position"]
    layers: tuple[int, ...]
    """The numbers of the layers with softmax attention."""
    patterns: tuple[Float[Tensor, "one head query key"], ...]
    dtype: torch.dtype
    """The model's."""


def probe(name: str, network: Any, stated: Layout) -> Probe:
    """Read a short text by transformers' own eager attention.

    Args:
        name: of the model, for messages.
        network: as transformers loads it, with eager attention.
        stated: what its configuration says.

    Raises:
        ModelError: the model cannot read it, looks ahead, or does not give a pattern of every
            layer and head.
    """
    embedding = network.get_input_embeddings().weight
    length = min(TOKENS, stated.context or TOKENS)
    tokens = torch.arange(length, device=embedding.device)[None] % len(embedding)
    try:
        with torch.inference_mode():
            patterns = _own_patterns(network, tokens, stated)
    except Exception as error:  # a model's own code may fail in any way
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ModelError(f"{name}: the model fails on a short text: {reason}") from error
    layers = stated.attention_layers
    if len(patterns) != len(layers):
        raise ModelError(
            f"{name}: {len(patterns)} attention patterns come from {stated.layers} layers; "
            "headscope reads models whose layers have one softmax attention each, or none"
        )
    for layer, pattern in zip(layers, patterns, strict=True):
        if tuple(pattern.shape) != (1, stated.heads, length, length):
            raise ModelError(
                f"{name}: layer {layer} gives a pattern of shape {tuple(pattern.shape)}, but the "
                f"configuration says {stated.heads} heads, {length} × {length}"
            )
        if not stated.both_ways and bool(pattern.triu(1).any()):
            raise ModelError(f"{name}: layer {layer} attends to later positions: no causal model")
    # the layers of a large model may lie on several devices
    kept = tuple(pattern.float().cpu() for pattern in patterns)
    return Probe(tokens, layers, kept, embedding.dtype)


def _own_patterns(network: Any, tokens: Tensor, stated: Layout) -> list[Tensor]:
    """The pattern of each layer that has one, as the model's own code gives it."""
    with ExitStack() as hooks:
        caught: list[Tensor] = []
        if stated.others:  # what a hybrid collects may hold other layers' states too
            for module in attention_layers(network):
                handle = module.register_forward_hook(lambda _, given, out: caught.append(out[1]))
                hooks.callback(handle.remove)
        found = network.base_model(tokens, output_attentions=True, **only_forward(stated))
    collected = caught if stated.others else getattr(found, "attentions", None) or ()
    return [pattern for pattern in collected if pattern is not None]


def only_forward(stated: Layout) -> dict[str, bool]:
    """What a model is told beside its tokens: that no next token is asked of it, if it writes."""
    return {} if stated.both_ways else {"use_cache": False}


def check_probe(engine: Engine, probed: Probe, what: str, *, slack: float = 1.0) -> None:
    """Compare an engine's patterns with those of the model's own eager attention.

    Args:
        engine: runs the same model.
        probed: what is expected.
        what: to call the engine's patterns in a message.
        slack: times `TOLERANCE` that a probability may be off.

    Raises:
        ModelError: a layer gives none, or another one.
    """
    seen: dict[int, Tensor] = {}
    stream_patterns(
        engine, probed.tokens, lambda layer, pattern: seen.update({layer: pattern.float().cpu()})
    )
    if sorted(seen) != list(probed.layers):
        raise ModelError(
            f"{len(seen)} of its {len(probed.patterns)} layers show their attention as {what}"
        )
    for layer, own in zip(probed.layers, probed.patterns, strict=True):
        if seen[layer].shape != own.shape:
            raise ModelError(f"layer {layer} has the shape {tuple(seen[layer].shape)} in {what}")
        worst = float((seen[layer] - own).abs().nan_to_num(nan=torch.inf).max())
        if worst > slack * TOLERANCE.get(probed.dtype, 5e-2):
            raise ModelError(f"its eager attention differs from {what} by {worst:.2g}")
