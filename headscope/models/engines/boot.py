"""A loaded model under TransformerLens."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoTokenizer

from headscope.errors import ModelError, first_line
from headscope.models.engines.lens import LensEngine
from headscope.models.layout.dimensions import AttentionDimensions

_OTHER_SENSES = ("text_config", "vision_config", "audio_config", "vq_config")
_INSTALLERS = ("load_modality_processor", "_ensure_torchvision")
"""What TransformerLens calls to read pictures and sounds; it runs pip for a missing package."""


def boot(name: str, hf_model: Any, tokenizer: Any, dimensions: AttentionDimensions) -> LensEngine:
    """Wrap a Hugging Face model; its modules are replaced by the bridge's.

    TransformerLens wants a folder for its name: a bare hub name asks the hub even when the model
    is given.

    Raises:
        ModelError: it also sees or hears, TransformerLens has no adapter for it, or fails.
    """
    config, weight = hf_model.config, hf_model.get_input_embeddings().weight
    parts = [part for part in _OTHER_SENSES if getattr(config, part, None) is not None]
    if parts:
        raise ModelError(
            f"{name}: a {config.architectures[0]} reads more than text ({', '.join(parts)}), and "
            "TransformerLens would install packages for that; save its language model alone"
        )
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder, _nothing_installed():
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


@contextmanager
def _nothing_installed() -> Iterator[None]:
    """TransformerLens goes without what reads pictures and sounds, in whichever module it is."""
    modules = [module for key, module in sys.modules.items() if key.startswith("transformer_lens")]
    functions = [
        (module, name, getattr(module, name))
        for module in modules
        for name in _INSTALLERS
        if hasattr(module, name)
    ]
    for module, name, _ in functions:
        setattr(module, name, lambda *args, **options: False)
    try:
        yield
    finally:
        for module, name, function in functions:
            setattr(module, name, function)
