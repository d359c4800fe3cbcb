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
        "attn_norm.weight": (D_MODEL,),
        "ffn_norm.weight": (D_MODEL,),
        "attn_q.weight": (D_MODEL, D_MODEL),
        "attn_k.weight": (narrow, D_MODEL),
        "attn_v.weight": (narrow, D_MODEL),
        "attn_output.weight": (D_MODEL, D_MODEL),
        "ffn_gate.weight": (D_FF, D_MODEL),
        "ffn_up.weight": (D_FF, D_MODEL),
        "ffn_down.weight": (D_MODEL, D_FF),
    }
    return whole | {f"blk.{i}.{key}": size for i in range(layers) for key, size in each.items()}


def save_gguf(
    path: Path,
    sizes: Sizes,
    *,
    layers: int = 2,
    tokenizer: Any = None,
    seed: int = 0,
    keys: dict[str, Any] | None = None,
) -> Path:
    """A small Llama, with other values of its architecture's keys."""
    writer = gguf.GGUFWriter(path, "llama")
    usual = {
        "block_count": layers,
        "context_length": 128,
        "embedding_length": D_MODEL,
        "feed_forward_length": D_FF,
        "attention.head_count": HEADS,
        "attention.head_count_kv": SHARED,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": VOCABULARY,
    }
    _add_keys(writer, "llama", usual | (keys or {}))
    if tokenizer is not None:
        _add_tokenizer(writer, tokenizer)
    rng = np.random.default_rng(seed)
    for key, size in sizes.items():
        values = rng.normal(size=size).astype(np.float32)
        writer.add_tensor(key, values)
    _write(writer)
    return path


def convert(
    path: Path,
    network: Any,
    keys: dict[str, Any],
    tensors: dict[str, list[float]],
) -> Path:
    """A network of transformers, its tensors as llama.cpp's `convert_hf_to_gguf.py` writes them.

    Args:
        path: of the file.
        network: a decoder.
        keys: of its architecture, beside the sizes.
        tensors: beside those of its parameters.
    """
    config = network.config
    architecture = config.model_type.removesuffix("_text")
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_vocab_size(config.vocab_size)
    writer.add_pad_token_id(0)
    _add_epsilon(writer, config)
    _add_keys(writer, architecture, keys)
    names = gguf.get_tensor_name_map(_ARCHITECTURES[architecture], config.num_hidden_layers)
    for name, weight in network.named_parameters():  # a tied matrix counts once
        stem, _, suffix = name.rpartition(".")
        values = weight.detach().numpy()
        if architecture == "llama" and stem.endswith("q_proj"):
            values = _interleaved(values, config.num_attention_heads)
        if architecture == "llama" and stem.endswith("k_proj"):
            values = _interleaved(values, config.num_key_value_heads)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            values = values + 1
        writer.add_tensor(f"{names.get_name(stem)}.{suffix}", np.ascontiguousarray(values))
    for name, numbers in tensors.items():
        writer.add_tensor(name, np.array(numbers, np.float32))
    _write(writer)
    return path


_ARCHITECTURES = {name: architecture for architecture, name in gguf.MODEL_ARCH_NAMES.items()}


def _interleaved(weight: Any, heads: int) -> Any:
    """The rows of each head in the order in which llama.cpp rotates them: pairs side by side."""
    halves = weight.reshape(heads, 2, -1, weight.shape[-1])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def _add_epsilon(writer: Any, config: Any) -> None:
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        names = ("layer_norm_eps", "norm_epsilon")
        stated = [getattr(config, name) for name in names if hasattr(config, name)]
        writer.add_layer_norm_eps(stated[0])


def _add_keys(writer: Any, architecture: str, keys: dict[str, Any]) -> None:
    add = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for key, value in keys.items():
        add[type(value)](f"{architecture}.{key}", value)


def _write(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
