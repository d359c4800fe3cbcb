"""A short text and the model's own eager attention on it: an engine must show the same."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.errors import ModelError, first_line
from headscope.models.engines.engine import Engine, attends_to_hidden, stream_patterns
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.modules import attention_modules

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


def probe(name: str, network: Any, dimensions: AttentionDimensions) -> Probe:
    """Read a short text by transformers' own eager attention.

    Args:
        name: of the model, for messages.
        network: as transformers loads it, with eager attention.
        dimensions: as its configuration states them.

    Raises:
        ModelError: the model cannot read it, looks ahead, or does not give a pattern of every
            layer and head.
    """
    embedding = network.get_input_embeddings().weight
    length = min(TOKENS, dimensions.context or TOKENS)
    tokens = torch.arange(length, device=embedding.device)[None] % len(embedding)
    try:
        with torch.inference_mode():
            patterns = _eager_patterns(network, tokens, dimensions)
    except Exception as error:  # a model's own code may fail in any way
        reason = first_line(error)
        raise ModelError(f"{name}: the model fails on a short text: {reason}") from error
    layers = dimensions.attention_layers
    if len(patterns) != len(layers):
        raise ModelError(
            f"{name}: {len(patterns)} attention patterns come from {len(layers)} attention "
            "modules; headscope reads models whose layers have one softmax attention each, or none"
        )
    for layer, pattern in zip(layers, patterns, strict=True):
        if tuple(pattern.shape) != (1, dimensions.heads, length, length):
            raise ModelError(
                f"{name}: layer {layer} gives a pattern of shape {tuple(pattern.shape)}, but the "
                f"configuration says {dimensions.heads} heads, {length} × {length}"
            )
        check_numbers(f"{name}: layer {layer}", pattern)
        if attends_to_hidden(pattern, dimensions.attention_kind):
            raise ModelError(f"{name}: layer {layer} attends to later positions: no causal model")
    # the layers of a large model may lie on several devices
    on_processor = tuple(pattern.float().cpu() for pattern in patterns)
    return Probe(tokens, layers, on_processor, embedding.dtype)


def check_numbers(layer: str, pattern: Tensor) -> None:
    """Refuse attention that holds no numbers, before anything else is said of it.

    Args:
        layer: the subject of a message.
        pattern: of that layer.

    Raises:
        ModelError: it holds NaN.
    """
    if bool(pattern.isnan().any()):
        narrow = pattern.dtype != torch.float32
        raise ModelError(
            f"{layer} gives attention that is NaN on a short text: a number of its configuration, "
            "such as the epsilon of a norm, or of its weights is out of range; "
            + ("try --dtype float32, or " if narrow else "")
            + "compare them with those of the published model"
        )


def _eager_patterns(network: Any, tokens: Tensor, dimensions: AttentionDimensions) -> list[Tensor]:
    """The pattern of each layer that has one, as the model's own code gives it."""
    with ExitStack() as hooks:
        hybrid_patterns: list[Tensor] = []
        if dimensions.others:  # what a hybrid collects may hold other layers' states too
            for module in attention_modules(network):
                handle = module.register_forward_hook(
                    lambda _, inputs, out: hybrid_patterns.append(out[1])
                )
                hooks.enter_context(handle)
        output = network.base_model(tokens, output_attentions=True, **only_forward(dimensions))
    patterns = hybrid_patterns if dimensions.others else getattr(output, "attentions", None) or ()
    return [pattern for pattern in patterns if pattern is not None]


def only_forward(dimensions: AttentionDimensions) -> dict[str, bool]:
    """Arguments by which no next token is asked of a model that writes."""
    return {"use_cache": False} if dimensions.attention_kind.predicts_next else {}


def check_probe(engine: Engine, probed: Probe, source: str, *, slack: float = 1.0) -> None:
    """Compare an engine's patterns with those of the model's own eager attention.

    Args:
        engine: runs the same model.
        probed: what is expected.
        source: of the engine's patterns, for the message.
        slack: times `TOLERANCE` that a probability may be off.

    Raises:
        ModelError: a layer gives none, or another one.
    """
    patterns: dict[int, Tensor] = {}
    stream_patterns(
        engine,
        probed.tokens,
        lambda layer, pattern: patterns.update({layer: pattern.float().cpu()}),
    )
    if sorted(patterns) != list(probed.layers):
        raise ModelError(
            f"{len(patterns)} of its {len(probed.patterns)} layers show their attention as {source}"
        )
    for layer, expected in zip(probed.layers, probed.patterns, strict=True):
        if patterns[layer].shape != expected.shape:
            raise ModelError(
                f"layer {layer} has the shape {tuple(patterns[layer].shape)} in {source}"
            )
        worst = float((patterns[layer] - expected).abs().nan_to_num(nan=torch.inf).max())
        if worst > slack * TOLERANCE.get(probed.dtype, 5e-2):
            raise ModelError(f"its eager attention differs from {source} by {worst:.2g}")


ROW_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 2e-2}
"""How far a row's sum may be from 1: rounding of the dtype over a few dozen keys."""


CHECKED_TOKENS = 12
"""Of each text that is run."""


def check_patterns(
    engine: Engine,
    name: str,
    heads: int,
    vocabulary_size: int,
    device: str,
    *,
    layers: Collection[int] | None = None,
) -> None:
    """Run one short batch and check that what the hooks give is attention, causal but of encoders.

    Args:
        engine: runs the model.
        name: of the model, for messages.
        heads: of a layer.
        vocabulary_size: of the model.
        device: where it runs.
        layers: the numbers of those that are to give a pattern; as many as the engine has, from 0
            on, if None.

    Raises:
        ModelError: a layer gave no pattern, another number of heads than configured, rows that
            do not sum to 1, or attention to later positions; the message names the layer.
    """
    checked: set[int] = set()
    length = CHECKED_TOKENS

    def check(layer: int, pattern: Tensor) -> None:
        checked.add(layer)
        title = f"{name}: layer {layer}"
        if tuple(pattern.shape) != (2, heads, length, length):
            raise ModelError(
                f"{title} gave a pattern of shape {tuple(pattern.shape)}, but the configuration "
                f"says batch 2, {heads} heads, {length} × {length}"
            )
        check_numbers(title, pattern)
        row_sums = pattern.float().sum(-1)
        excess = row_sums - 1
        if getattr(engine, "sinks", False):
            excess = excess.clamp_min(0)  # a sink takes a share of a row that no token has
        worst = float(excess.abs().nan_to_num(nan=torch.inf).max())
        if worst > ROW_TOLERANCE.get(pattern.dtype, 1e-2):
            raise ModelError(f"{title}: rows of the pattern do not sum to 1 (off by {worst:.3g})")
        if attends_to_hidden(pattern, engine.attention_kind):
            raise ModelError(f"{title} attends to later positions: not a causal model")

    tokens = torch.arange(2 * length).reshape(2, length) % vocabulary_size
    stream_patterns(engine, tokens.to(device), check)
    missing = sorted({*(range(engine.layers) if layers is None else layers)} - checked)
    if missing:
        raise ModelError(
            f"{name}: no attention pattern from layer {', '.join(map(str, missing))}; "
            "headscope reads softmax attention only"
        )
