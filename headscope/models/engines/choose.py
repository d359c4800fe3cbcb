"""The choice of the engine that reads a model: it must give the same patterns as the model's own
eager attention on a short text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.corpus.window import PADDING
from headscope.errors import ModelError, first_line, is_out_of_memory
from headscope.heads import without_softmax
from headscope.models.engines.eager import EagerEngine
from headscope.models.engines.engine import Engine, attends_to_hidden, stream_patterns
from headscope.models.engines.fused import EAGER, FusedEngine, attend_by
from headscope.models.engines.lens import LensEngine, boot
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.projections import attention_modules
from headscope.models.weights import in_one_sentence
from headscope.settings import AUTO

TOKENS = 48
FIRST = 10
"""The first token of the short text; smaller numbers are often special, and XLM hides padding."""
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Largest difference of a probability from the model's own eager attention. Scores of several
hundreds are rounded by more: such a model is read by its own softmax instead."""
DEVICE_TOLERANCE = {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}
"""The same between two devices, as deep models add up roundings. Some devices are wrong without an
error: TransformerLens gave wrong results on Apple's `mps` (its issue 1178)."""
ROW_TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 2e-2}
"""Largest distance of a row's sum from 1: rounding of the dtype over a few dozen keys."""
LENS_SLACK = 10.0
"""Slack for the lens engine, which has the model's own softmax: scores of some thousands, as in
heavily noised weights, are rounded by a few 1e-4 whichever way they are summed."""


def choose_engine(
    name: str,
    network: Any,
    tokenizer: Any,
    dimensions: AttentionDimensions,
    *,
    engine_name: str,
    device: str,
) -> tuple[Engine, tuple[str, ...]]:
    """The engine asked for; for `auto` the fused one, or the eager one and a note that says why.

    Each has shown the patterns of the model's own eager attention on a short text, which the model
    reads before it is moved to the device.

    Args:
        name: of the model, for messages.
        network: as transformers loads it, with eager attention.
        tokenizer: its tokenizer, as transformers loads it.
        dimensions: as its configuration states them.
        engine_name: `auto`, `fused`, `eager` or `lens`.
        device: where the model is to run.

    Raises:
        ModelError: no engine fits, or not the one that was asked for.
    """
    # the model's own eager attention is the reference, on the device where it was loaded
    attend_by(network, EAGER)
    probed = probe(name, network, dimensions)
    if str(probed.tokens.device) != device:
        network.to(device)
        # another device's kernels may round more
        tokens, tolerance = probed.tokens.to(device), DEVICE_TOLERANCE[network.dtype]
        probed = replace(probed, tokens=tokens, tolerance=tolerance)
    if engine_name == LensEngine.name:
        # TransformerLens runs neither hybrids nor encoders
        unfit = "" if dimensions.attention_kind.predicts_next else "an encoder"
        if dimensions.others:
            unfit = without_softmax(dimensions.others)
        if unfit:
            raise ModelError(
                f"{name}: {unfit}; such a model is read by the fused or the eager engine alone; "
                "--engine lens and study weights do not take it"
            )
        try:
            engine = boot(name, network, tokenizer, dimensions)
            check_probe(engine, probed, "what TransformerLens shows", slack=LENS_SLACK)
        except Exception as error:  # TransformerLens has no family of errors of its own
            fault = first_line(error).split(". Available architectures")[0]  # 150 names follow
            raise ModelError(f"{name}: the lens engine does not fit: {fault}") from error
        return engine, ()
    # the first engine whose patterns are those of the probe
    makers: dict[str, Callable[..., Engine]] = {FusedEngine.name: _fused, EagerEngine.name: _eager}
    candidates = makers if engine_name == AUTO else {engine_name: makers[engine_name]}
    reasons: dict[str, str] = {}
    for tried, make in candidates.items():
        try:
            fitting = make(network, dimensions, probed)
        except Exception as error:  # a model's own code may fail in any way
            reasons[tried] = first_line(error)
            if is_out_of_memory(error):  # another engine takes more: it would fit by chance
                raise ModelError(
                    f"{name}: a short text does not fit into memory: {reasons[tried]}"
                ) from error
            attend_by(network, EAGER)
            continue
        # users read why the fused engine does not read the model, if it was tried before
        reason = reasons.get(FusedEngine.name)
        if reason is None:
            return fitting, ()
        return fitting, (f"eager engine, because the fused one does not fit: {reason}",)
    # no engine reads the model: all reasons, or that of the engine asked for
    if engine_name == AUTO:
        failed = "; ".join(f"{tried}: {reason}" for tried, reason in reasons.items())
        raise ModelError(f"{name}: no engine fits; {failed}")
    raise ModelError(f"{name}: the {engine_name} engine does not fit: {reasons[engine_name]}")


def _eager(network: Any, dimensions: AttentionDimensions, probed: Probe) -> EagerEngine:
    engine = EagerEngine(network, dimensions, probed.tokens)
    check_probe(engine, probed, "what its modules return")
    check_padding(engine, probed)
    return engine


def check_padding(engine: Engine, probed: Probe) -> None:
    """Compare the patterns of a text that is read alone and in a batch with a longer text.

    Raises:
        ModelError: a probability differs.
    """
    # half of the text, alone and padded beside the whole
    long_text = probed.tokens
    length = long_text.shape[1]
    short = max(1, length // 2)
    padded = long_text.clone()
    padded[:, short:] = PADDING if engine.attention_kind.sees_future else long_text[:, :1]
    alone = _patterns(engine, long_text[:, :short])
    together = _patterns(engine, torch.cat([long_text, padded]))
    # what a query sees of the padding changes its other probabilities
    for layer, pattern in alone.items():
        in_batch = together[layer][1:, :, :short, :short].float()
        worst = float((in_batch - pattern.float()).abs().nan_to_num(nan=torch.inf).max())
        if worst > probed.tolerance:
            raise ModelError(
                f"the attention of layer {layer} differs by {worst:.2g} if a text is read in a "
                "batch with another"
            )


def _fused(network: Any, dimensions: AttentionDimensions, probed: Probe) -> FusedEngine:
    engine = FusedEngine(network, dimensions)
    check_probe(engine, probed, "softmax(q·k)")
    modules = attention_modules(network)
    if len(modules) != len(engine.attention_layers) or not engine.matrices():
        raise ModelError("its attention matrices were not found")
    return engine


def bridge_engine(name: str, bridge: Any, dimensions: AttentionDimensions) -> LensEngine:
    """The lens engine of a user's bridge, whose eager attention cannot be asked any more.

    Raises:
        ModelError: it does not show causal softmax attention.
    """
    engine = LensEngine(bridge.eval(), dimensions)
    weight = bridge.original_model.get_input_embeddings().weight
    tokens = probe_tokens(dimensions, len(weight)).to(weight.device)
    check_patterns(name, [*_patterns(engine, tokens).values()], dimensions, least=1.0)
    return engine


@dataclass(frozen=True)
class Probe:
    """Tokens, and each layer's pattern on them before an engine touches the model."""

    tokens: Int[Tensor, "one position"]
    layers: tuple[int, ...]
    """Numbers of the layers with softmax attention."""
    patterns: tuple[Float[Tensor, "one head query key"], ...]
    tolerance: float
    """Largest difference of an engine's probability from these."""


def probe(name: str, network: Any, dimensions: AttentionDimensions) -> Probe:
    """Read a short text by transformers' own eager attention.

    Raises:
        ModelError: the model cannot read it, looks ahead, or does not give a pattern of every
            layer and head.
    """
    embedding = network.get_input_embeddings().weight
    tokens = probe_tokens(dimensions, len(embedding)).to(embedding.device)
    with in_one_sentence(name, "the model fails on a short text"), torch.inference_mode():
        patterns = _eager_patterns(network, tokens, dimensions)
    check_patterns(name, patterns, dimensions)
    # the layers of a large model may lie on several devices
    on_processor = tuple(pattern.float().cpu() for pattern in patterns)
    return Probe(
        tokens, dimensions.attention_layers, on_processor, TOLERANCE.get(embedding.dtype, 5e-2)
    )


def probe_tokens(dimensions: AttentionDimensions, vocabulary_size: int) -> Tensor:
    """The short text."""
    length = min(TOKENS, dimensions.context or TOKENS)
    return torch.arange(FIRST, FIRST + length)[None] % vocabulary_size


def check_probe(engine: Engine, probed: Probe, source: str, *, slack: float = 1.0) -> None:
    """Compare an engine's patterns with those of the model's own eager attention.

    Args:
        engine: runs the same model.
        probed: what is expected.
        source: of the engine's patterns, for the message.
        slack: times the tolerance that a probability may be off.

    Raises:
        ModelError: a layer gives none, or another one.
    """
    patterns = _patterns(engine, probed.tokens)
    if sorted(patterns) != list(probed.layers):
        raise ModelError(
            f"{len(patterns)} of its {len(probed.patterns)} layers show their attention as {source}"
        )
    for layer, expected in zip(probed.layers, probed.patterns, strict=True):
        # no comparison with NaN is true, so it counts as the largest difference
        worst = float((patterns[layer].float() - expected).abs().nan_to_num(nan=torch.inf).max())
        if worst > slack * probed.tolerance:
            device = probed.tokens.device.type
            raise ModelError(
                f"its eager attention differs from {source} on {device} by {worst:.2g}"
            )


def check_patterns(
    name: str,
    patterns: Sequence[Float[Tensor, "one head query key"]],
    dimensions: AttentionDimensions,
    *,
    least: float = -torch.inf,
) -> None:
    """Check that patterns are softmax attention of every layer and head.

    Args:
        name: of the model, for messages.
        patterns: of a short text, a layer each.
        dimensions: as its configuration states them.
        least: smallest sum of a row; a learned sink may leave less than 1.

    Raises:
        ModelError: a layer gives no pattern, another number of heads than configured, rows that do
            not sum to 1, or attention to later positions; the message names the layer.
    """
    # the number of layers and heads that the configuration states
    layers, heads = dimensions.attention_layers, dimensions.heads
    if [tuple(pattern.shape[:2]) for pattern in patterns] != [(1, heads)] * len(layers):
        counts = sorted({pattern.shape[1] for pattern in patterns})
        raise ModelError(
            f"{name}: {len(patterns)} attention patterns of {counts} heads come from {len(layers)} "
            f"layers of {heads} heads; headscope reads models whose layers have one softmax "
            "attention each, or none"
        )
    for layer, pattern in zip(layers, patterns, strict=True):
        title, sums = f"{name}: layer {layer}", pattern.float().sum(-1)
        queries, keys = pattern.shape[-2:]
        if queries != keys:
            raise ModelError(
                f"{title} gives weights of {keys} keys for each of {queries} queries, as of "
                "attention within windows; headscope reads one weight for each query and key"
            )
        # rows with a learned sink sum to less than 1, and no row to more
        off = float(torch.maximum(sums - 1, least - sums).max())
        if not off <= ROW_TOLERANCE.get(pattern.dtype, 1e-2):
            raise ModelError(
                f"{title}: rows of the pattern do not sum to 1 (off by {off:.3g}); if numbers "
                "overflow, --dtype float32 may help"
            )
        if attends_to_hidden(pattern, dimensions.attention_kind):
            raise ModelError(f"{title} attends to later positions, as no causal decoder does")


def _patterns(engine: Engine, tokens: Tensor) -> dict[int, Tensor]:
    patterns: dict[int, Tensor] = {}
    stream_patterns(engine, tokens, lambda layer, pattern: patterns.update({layer: pattern.cpu()}))
    return patterns


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
        output = network.base_model(tokens, output_attentions=True, **dimensions.forward_options)
    collected = getattr(output, "attentions", None) or ()
    patterns = [pattern for pattern in collected if pattern is not None]
    if dimensions.others:
        return hybrid_patterns
    if patterns:
        return patterns
    # some models collect nothing, though their modules return the weights
    engine = EagerEngine(network, dimensions, tokens)
    return [*_patterns(engine, tokens).values()]
