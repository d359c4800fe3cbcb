"""Small models with random weights, written to folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from headscope.corpus.window import Window

LAYOUTS = ("gpt2", "gpt_neox", "llama")
SHAPE = {"layers": 2, "heads": 4}


def save_model(
    layout: str,
    tokenizer,
    folder: Path,
    *,
    spread: float = 0.4,
    context: int = 256,
    layers: int = SHAPE["layers"],
) -> Path:
    """A small causal model with random weights, and its tokenizer."""
    import torch
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        LlamaConfig,
        LlamaForCausalLM,
    )

    torch.manual_seed(0)

    heads, width = SHAPE["heads"], 32
    special = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    common = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 64,
        "max_position_embeddings": context,
        "vocab_size": len(tokenizer),
        "initializer_range": spread,
        **special,
    }
    gpt2 = {
        "n_embd": width,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": context,
        "vocab_size": len(tokenizer),
        "initializer_range": spread,
        **special,
    }
    model = {
        "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**gpt2)),
        "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**common)),
        "llama": lambda: LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, **common)),
    }[layout]()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def own_code(gpt2_folder, folder) -> str:
    """A first GPT, whose attention does not go through transformers' attention interface."""
    import torch
    from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

    torch.manual_seed(0)
    config = OpenAIGPTConfig(n_embd=16, n_layer=2, n_head=2, n_positions=64, vocab_size=500)
    OpenAIGPTLMHeadModel(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(gpt2_folder / name, folder / name)
    return str(folder)


def edit_config(folder: Path, **changes: object) -> None:
    """Change what a model folder's config.json says."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def save_uneven(network: Any, tokenizer: Any, folder: Path) -> Path:
    """Write a network with random weights that let heads attend unevenly."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in network.parameters():
            if weights.dim() > 1:
                weights.normal_(0, 0.25, generator=generator)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def eager_attention(folder: Path, windows: Iterable[Window]) -> list[np.ndarray]:
    """Attention of each window by transformers' own eager code, layer × head × query × key."""
    import torch
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        tokens = [torch.from_numpy(window.tokens)[None] for window in windows]
        outputs = [network(each, output_attentions=True).attentions for each in tokens]
    return [torch.cat(layers).double().numpy() for layers in outputs]
