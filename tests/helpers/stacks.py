"""Models with an encoder and a decoder: tiny ones with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from tests.helpers.models import save_uneven

SHAPE = {"E": 2, "D": 3, "X": 3}
"""Layers of each stack."""
HEADS, CONTEXT = 4, 64
BART_LIKE = {
    "d_model": 32, "encoder_layers": SHAPE["E"], "decoder_layers": SHAPE["D"],
    "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32, "max_position_embeddings": CONTEXT,
}  # fmt: skip
T5_LIKE = {
    "d_model": 32, "num_layers": SHAPE["E"], "num_decoder_layers": SHAPE["D"],
    "num_heads": HEADS, "d_kv": 8, "d_ff": 32,
}  # fmt: skip


def config_of(model_type: str, tokenizer: Any, **more: Any) -> Any:
    """A tiny configuration; its decoder begins with a token that the tokenizer has."""
    special = {"pad_token_id": 3, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    shape = T5_LIKE if model_type.endswith("t5") else BART_LIKE
    stated = {"vocab_size": len(tokenizer), "decoder_start_token_id": 3, **special, **shape}
    return AutoConfig.for_model(model_type, **stated | more)


def save_stacks(model_type: str, tokenizer: Any, folder: Path, **more: Any) -> Path:
    """Random weights that let heads attend unevenly."""
    network = AutoModelForSeq2SeqLM.from_config(config_of(model_type, tokenizer, **more))
    return save_uneven(network, tokenizer, folder)
