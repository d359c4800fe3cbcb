"""How planted writers are laid out in the residual stream, and as GPT-2 and as Llama."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from headscope.models.quiet import quiet

LAYOUTS = ("gpt2", "llama")
LAYERS, PER_LAYER, WIDTH, CONTEXT = 2, 16, 64, 256
D_MODEL = PER_LAYER * WIDTH
HALF = D_MODEL // 2
CODE, SKETCH, WAVES, MOST_TRAITS = 256, 24, 16, 4
TRAITS = ("bos", "name", "value", "member", "article", "person", "noun", "plural")
# places in the first half of the residual stream
WORD = slice(0, CODE)
TRAIT = CODE
FILLER = TRAIT + len(TRAITS)
MARKS = {"previous": FILLER + 1, "named": FILLER + 1 + SKETCH}
POSITION = slice(FILLER + 1 + 2 * SKETCH, FILLER + 1 + 2 * SKETCH + 2 * WAVES)
ROTARY_BASE = 1e6
"""So large that the second half of a head's waves stand still within a window."""


def _length(layer: int, rotary: bool) -> int:
    """The squared length of half the stream that a layer reads."""
    return CODE + MOST_TRAITS + (0 if rotary else WAVES) + layer * 2 * SKETCH


def gain(layer: int, rotary: bool) -> float:
    """What turns a norm's output back into its input; both halves of the stream count."""
    return float(np.sqrt(2 * _length(layer, rotary) / D_MODEL))


def frequencies(rotary: bool) -> Float[ndarray, " wave"]:
    """Angular frequencies of the position waves."""
    step = np.arange(WAVES)
    if rotary:
        return np.asarray(ROTARY_BASE ** (-step / (WIDTH // 2)))
    return np.asarray(np.pi * 2.0 ** (-step / 2))


def save_layout(
    layout: str,
    table: Float[ndarray, "word d_model"],
    parts: dict[str, Float[ndarray, "layer head d_model width"]],
    folder: Path,
) -> None:
    """Write a model with these embeddings and matrices.

    Args:
        layout: `gpt2` or `llama`.
        table: the embedding, which is the unembedding too.
        parts: `q`, `k`, `v`, and `o` transposed.
        folder: where to write.
    """
    model = (_llama if layout == "llama" else _gpt2)(table, *(parts[name] for name in "qkvo"))
    with quiet():
        model.save_pretrained(folder)


def _gpt2(table: ndarray, q: ndarray, k: ndarray, v: ndarray, o: ndarray) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(table),
            n_embd=D_MODEL,
            n_head=PER_LAYER,
            n_layer=LAYERS,
            n_positions=CONTEXT,
            n_inner=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    state = _silenced(model)
    _fill(state["transformer.wte.weight"], table)
    angle = np.arange(CONTEXT)[:, None] * frequencies(rotary=False)
    positions = np.zeros((CONTEXT, D_MODEL))
    positions[:, POSITION] = np.concatenate([np.cos(angle), np.sin(angle)], 1)
    positions[:, HALF:] = -positions[:, :HALF]
    _fill(state["transformer.wpe.weight"], positions)
    for layer in range(LAYERS):
        at = f"transformer.h.{layer}"
        state[f"{at}.ln_1.weight"].fill_(gain(layer, rotary=False))
        joined = [_side_by_side(part[layer]) for part in (q, k, v)]
        _fill(state[f"{at}.attn.c_attn.weight"], np.concatenate(joined, 1))
        _fill(state[f"{at}.attn.c_proj.weight"], _side_by_side(o[layer]).T)
    return model


def _llama(table: ndarray, q: ndarray, k: ndarray, v: ndarray, o: ndarray) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(table),
            hidden_size=D_MODEL,
            num_attention_heads=PER_LAYER,
            num_key_value_heads=PER_LAYER,
            head_dim=WIDTH,
            num_hidden_layers=LAYERS,
            intermediate_size=4,
            bos_token_id=0,
            eos_token_id=0,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": ROTARY_BASE},
        )
    )
    state = _silenced(model)
    _fill(state["model.embed_tokens.weight"], table)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        state[f"{at}.input_layernorm.weight"].fill_(gain(layer, rotary=True))
        for name, part in (("q", q), ("k", k), ("v", v)):
            _fill(state[f"{at}.self_attn.{name}_proj.weight"], _side_by_side(part[layer]).T)
        _fill(state[f"{at}.self_attn.o_proj.weight"], _side_by_side(o[layer]))
    return model


def _silenced(model: Any) -> dict[str, torch.Tensor]:
    """All weights at zero but the norms' gains, ready to be filled in place."""
    state: dict[str, torch.Tensor] = model.state_dict()
    for name, tensor in state.items():
        tensor.fill_(float(("norm" in name or ".ln_" in name) and name.endswith("weight")))
    return state


def _side_by_side(heads: Float[ndarray, "head into out"]) -> Float[ndarray, "into all"]:
    return np.concatenate(list(heads), 1)


def _fill(tensor: torch.Tensor, values: ndarray) -> None:
    tensor.copy_(torch.from_numpy(np.ascontiguousarray(values)).to(tensor.dtype))
