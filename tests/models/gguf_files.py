"""GGUF files of a small Llama."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

D_MODEL, HEADS, SHARED, D_FF, VOCABULARY = 32, 4, 2, 64, 300
Sizes = dict[str, tuple[int, ...]]


def sizes_of(layers: int) -> Sizes:
    narrow = D_MODEL * SHARED // HEADS
    whole: Sizes = {
        "token_embd.weight": (VOCABULARY, D_MODEL),
        "output_norm.weight": (D_MODEL,),
        "output.weight": (VOCABULARY, D_MODEL),
    }
    each: Sizes = {
        "attn_norm.weight": (D_MODEL,), "ffn_norm.weight": (D_MODEL,),
        "attn_q.weight": (D_MODEL, D_MODEL), "attn_k.weight": (narrow, D_MODEL),
        "attn_v.weight": (narrow, D_MODEL), "attn_output.weight": (D_MODEL, D_MODEL),
        "ffn_gate.weight": (D_FF, D_MODEL), "ffn_up.weight": (D_FF, D_MODEL),
        "ffn_down.weight": (D_MODEL, D_FF),
    }  # fmt: skip
    return whole | {f"blk.{i}.{key}": size for i in range(layers) for key, size in each.items()}


def save_gguf(
    path: Path,
    sizes: Sizes,
    *,
    layers: int = 2,
    tokenizer: Any = None,
    seed: int = 0,
) -> Path:
    """A small Llama."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(128)
    writer.add_embedding_length(D_MODEL)
    writer.add_feed_forward_length(D_FF)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(SHARED)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    if tokenizer is not None:
        _add_tokenizer(writer, tokenizer)
    rng = np.random.default_rng(seed)
    for key, size in sizes.items():
        values = rng.normal(size=size).astype(np.float32)
        writer.add_tensor(key, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: Any, tokenizer: Any) -> None:
    stated = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(stated["vocab"], key=stated["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token == tokenizer.bos_token else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in stated["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
