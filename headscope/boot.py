"""A loaded model under TransformerLens."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoTokenizer

from headscope.errors import ModelError
from headscope.lens import LensEngine


def boot(name: str, hf_model: Any, tokenizer: Any, device: str, dtype: torch.dtype) -> LensEngine:
    """Wrap a Hugging Face model; its modules are replaced by the bridge's.

    TransformerLens wants a folder for its name: a bare hub name asks the hub even when the model
    is given.

    Raises:
        ModelError: TransformerLens has no adapter for it, or fails.
    """
    config = hf_model.config
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder:
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        try:
            bridge = TransformerBridge.boot_transformers(
                folder, hf_model=hf_model, device=device, dtype=dtype,
                tokenizer=AutoTokenizer.from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False
                ),
            )  # fmt: skip
        except Exception as error:  # TransformerLens has no family of errors of its own
            reason = str(error).strip().split("\n")[0]
            raise ModelError(
                f"{name}: TransformerLens cannot wrap a {config.architectures[0]}: {reason}"
            ) from error
    return LensEngine(bridge, config.num_hidden_layers)
