"""The choice of the engine that reads a model; TransformerLens is started here."""

from __future__ import annotations

import tempfile
from typing import Any

from transformers import AutoTokenizer

from headscope.errors import ModelError, first_line
from headscope.heads import without_softmax
from headscope.models.engines.adapters import EAGER, attend_by
from headscope.models.engines.engine import Engine
from headscope.models.engines.lens import LensEngine
from headscope.models.engines.probe import Probe, check_patterns, check_probe, probe
from headscope.models.layout.dimensions import AttentionDimensions

LENS_SLACK = 10.0
"""Slack for the lens engine, which has the model's own softmax: scores of some thousands, as in
heavily noised weights, are rounded by a few 1e-4 whichever way they are summed."""


def choose_engine(
    name: str,
    hf_model: Any,
    backend: Any,
    dimensions: AttentionDimensions,
    *,
    engine_name: str,
    longest: int,
    device: str,
) -> tuple[Engine, tuple[str, ...]]:
    """The engine asked for; for `auto` the fused one, or the other and a note that says why.

    Either one has shown the patterns of the model's own eager attention on a short text, which the
    model reads before it is moved to the device.

    Args:
        name: of the model, for messages.
        hf_model: as transformers loads it, with eager attention.
        backend: its tokenizer, as transformers loads it.
        dimensions: as its configuration states them.
        engine_name: `auto`, `fused` or `lens`.
        longest: tokens of the longest window that will be read.
        device: where the model is to run.

    Raises:
        ModelError: no engine fits, or not the one that was asked for.
    """
    config = hf_model.config
    if getattr(config, "quantization_config", None) is not None:
        del config.quantization_config  # a GGUF's weights are no longer quantised
    if not config.architectures:
        config.architectures = [type(hf_model).__name__]
    attend_by(hf_model, EAGER)
    probed = probe(name, hf_model, dimensions)
    if str(probed.tokens.device) != device:
        hf_model.to(device)
        probed = probed.on(device, hf_model.dtype)
    if engine_name == "lens" and not dimensions.attention_kind.predicts_next:
        raise ModelError(
            f"{name}: an encoder is read by the fused engine alone; --engine lens and study "
            "weights do not take it"
        )
    if engine_name == "lens" and dimensions.others:
        raise ModelError(
            f"{name}: {without_softmax(dimensions.others)}; such a model is read by the fused "
            "engine alone; --engine lens and study weights do not take it"
        )
    if engine_name == "lens":
        return _lens(name, hf_model, backend, dimensions, probed), ()
    # each engine's library takes seconds to import
    from headscope.models.engines.fused import FusedEngine

    try:
        engine = FusedEngine(hf_model, dimensions, probed)
        dimensions.check_reach(longest, engine.windows)
        return engine, ()
    except Exception as error:  # a model's own code may fail in any way
        reason = first_line(error)
        only_fused = dimensions.others or not dimensions.attention_kind.predicts_next
        if engine_name == "fused" or only_fused:
            raise ModelError(f"{name}: the fused engine does not fit: {reason}") from error
    attend_by(hf_model, EAGER)
    try:
        lens = _lens(name, hf_model, backend, dimensions, probed)
    except ModelError as error:
        raise ModelError(f"{error}; nor does the fused engine fit: {reason}") from error
    return lens, (f"lens engine, because the fused one does not fit: {reason}",)


def _lens(
    name: str, hf_model: Any, backend: Any, dimensions: AttentionDimensions, probed: Probe
) -> Engine:
    engine = boot(name, hf_model, backend, dimensions)
    try:
        check_probe(engine, probed, "what TransformerLens shows", slack=LENS_SLACK)
        check_patterns(engine, name, dimensions, probed.tokens)
    except Exception as error:  # likewise
        raise ModelError(f"{name}: the lens engine does not fit: {first_line(error)}") from error
    return engine


_OTHER_SENSES = ("text_config", "vision_config", "audio_config", "vq_config")


def boot(name: str, hf_model: Any, tokenizer: Any, dimensions: AttentionDimensions) -> LensEngine:
    """Wrap a Hugging Face model; its modules are replaced by the bridge's.

    TransformerLens wants a folder for its name: a bare hub name asks the hub even when the model
    is given.

    Raises:
        ModelError: it also sees or hears, TransformerLens has no adapter for it, or fails.
    """
    # no model that the fused engine reads needs it, and it takes a second to import
    from transformer_lens.model_bridge import TransformerBridge

    config, weight = hf_model.config, hf_model.get_input_embeddings().weight
    parts = [part for part in _OTHER_SENSES if getattr(config, part, None) is not None]
    if parts:
        raise ModelError(
            f"{name}: a {config.architectures[0]} reads more than text ({', '.join(parts)}), and "
            "TransformerLens would install packages for that; save its language model alone"
        )
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder:
        try:
            config.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            bridge = TransformerBridge.boot_transformers(
                folder,
                hf_model=hf_model,
                device=str(weight.device),
                dtype=weight.dtype,
                tokenizer=AutoTokenizer.from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False
                ),
            )
        except Exception as error:  # TransformerLens has no family of errors of its own
            reason = first_line(error)
            reason = reason.split(". Available architectures")[0]  # some 150 names follow
            raise ModelError(
                f"{name}: TransformerLens cannot wrap a {config.architectures[0]}: {reason}"
            ) from error
    return LensEngine(bridge, dimensions)
