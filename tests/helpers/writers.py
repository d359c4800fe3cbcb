"""Models whose heads write what is planted in them, by hand, in GPT-2's and Llama's layout.

Every token has a code of ±1, which is its unembedding too, so that a head that hands codes on
copies, and one that hands them on with the other sign suppresses. Each coordinate comes again with
the other sign, so that norms only scale.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

LAYERS, HEADS, WIDTH, CONTEXT = 2, 8, 32, 256
D_MODEL, HALF, CODE, WAVES = HEADS * WIDTH, HEADS * WIDTH // 2, 80, 16
WORD, CONSTANT, POSITION = slice(0, CODE), CODE, slice(CODE + 1, CODE + 1 + 2 * WAVES)
GAIN = 1.5
"""Of what the planted heads write, in units of a code."""

PLANTED = {
    "copy": (0, 0),
    "frequent": (0, 1),
    "own token": (0, 2),
    "random": (0, 3),
    "suppress": (1, 0),
}
"""Which head does what: `frequent` raises the text's most frequent tokens wherever it looks; `own
token` looks at one kind of token alone and always raises it; `random` has random V and O."""


def save_writers(
    layout: str, tokenizer, frequent: list[int], folder: Path, *, noise: float = 0.0, seed: int = 0
) -> Path:
    """Write such a model: previous-token heads with different writes.

    Args:
        layout: `gpt2` or `llama`.
        tokenizer: of transformers.
        frequent: the most frequent tokens of the text; `own token` looks at the first of them.
        folder: where to write.
        noise: standard deviation of normal noise on Q, K, V and O, in units of their root mean
            square.
        seed: seeds codes and noise.
    """
    rng = np.random.default_rng(seed)
    codes = rng.choice([-1.0, 1.0], (len(tokenizer), CODE))
    table = np.zeros((len(tokenizer), D_MODEL))
    table[:, WORD], table[:, CONSTANT] = codes, 4.0
    q, k, v, o = (np.zeros((LAYERS, HEADS, D_MODEL, WIDTH)) for _ in range(4))  # o: its transpose
    for name, (layer, head) in PLANTED.items():
        at = layer, head
        looking(layout, q[at], k[at])
        handed = np.linalg.qr(rng.normal(size=(CODE, WIDTH)))[0]
        v[at][WORD], o[at][WORD] = handed, GAIN * handed * (-1 if name == "suppress" else 1)
        if name == "frequent":
            v[at], o[at] = constant(GAIN / len(frequent) * codes[frequent].sum(0))
        if name == "own token":
            q[at][:], k[at][:] = 0, 0
            q[at][CONSTANT, 0 if layout == "gpt2" else WIDTH // 2 - 1] = 1.0
            k[at][WORD, 0 if layout == "gpt2" else WIDTH // 2 - 1] = codes[frequent[0]] * 1.5
            v[at], o[at] = constant(GAIN / 4 * codes[frequent[0]])
        if name == "random":
            v[at], o[at] = rng.normal(size=(2, D_MODEL, WIDTH)) * 0.15
    mirror(table)
    for part in (o,):
        part[:, :, HALF:] = -part[:, :, :HALF]
    for part in (q, k, v, o):
        part += rng.normal(0, noise * np.sqrt((part[part != 0] ** 2).mean()), part.shape)
    model = (gpt2 if layout == "gpt2" else llama)(len(tokenizer), table, q, k, v, o)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def mirror(table: np.ndarray) -> None:
    table[:, HALF:] = -table[:, :HALF]


def constant(written: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V and O of a head that writes the same wherever it looks."""
    v, o = np.zeros((2, D_MODEL, WIDTH))
    v[CONSTANT, 0], o[WORD, 0] = 1.0, written
    return v, o


def looking(layout: str, q: np.ndarray, k: np.ndarray) -> None:
    """Let a head look at the previous token: rotary waves, or GPT-2's positions, of the place."""
    step = frequencies(layout)
    if layout == "llama":
        first, second = np.arange(WAVES), np.arange(WAVES, 2 * WAVES)
        k[CONSTANT, first] = 1.0
        q[CONSTANT, first], q[CONSTANT, second] = 4 * np.cos(step), -4 * np.sin(step)
        return
    place = np.arange(POSITION.start, POSITION.stop)
    cos, sin = place[:WAVES], place[WAVES:]
    near = np.arange(WAVES)
    k[cos, near] = k[sin, near + WAVES] = 1.0
    # the addition theorems of cos(w(p − 1)) and sin(w(p − 1))
    q[cos, near] = q[sin, near + WAVES] = 20 * np.cos(step)
    q[sin, near], q[cos, near + WAVES] = 20 * np.sin(step), -20 * np.sin(step)


def frequencies(layout: str) -> np.ndarray:
    if layout == "llama":
        return 64.0 ** (-np.arange(WAVES) / WAVES)
    return np.pi * 2.0 ** (-np.arange(WAVES) / 2)


def gpt2(size: int, table, q, k, v, o) -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=size, n_embd=D_MODEL, n_head=HEADS, n_layer=LAYERS, n_positions=CONTEXT,
        n_inner=4, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    state = emptied(model)
    fill(state["transformer.wte.weight"], table)
    angle = np.arange(CONTEXT)[:, None] * frequencies("gpt2")
    positions = np.zeros((CONTEXT, D_MODEL))
    positions[:, POSITION] = np.concatenate([np.cos(angle), np.sin(angle)], 1)
    mirror(positions)
    fill(state["transformer.wpe.weight"], positions)
    for layer in range(LAYERS):
        at = f"transformer.h.{layer}.attn"
        joined = [side_by_side(part[layer]) for part in (q, k, v)]
        fill(state[f"{at}.c_attn.weight"], np.concatenate(joined, 1))
        fill(state[f"{at}.c_proj.weight"], side_by_side(o[layer]).T)
    return model


def llama(size: int, table, q, k, v, o) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=size, hidden_size=D_MODEL, num_attention_heads=HEADS, num_key_value_heads=HEADS,
        head_dim=WIDTH, num_hidden_layers=LAYERS, intermediate_size=4, bos_token_id=0,
        eos_token_id=0, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 64.0},
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    state = emptied(model)
    fill(state["model.embed_tokens.weight"], table)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}.self_attn"
        for name, part in (("q", q), ("k", k), ("v", v)):
            fill(state[f"{at}.{name}_proj.weight"], side_by_side(part[layer]).T)
        fill(state[f"{at}.o_proj.weight"], side_by_side(o[layer]))
    return model


def emptied(model) -> dict[str, torch.Tensor]:
    state = model.state_dict()
    for name, tensor in state.items():
        tensor.fill_(float(("norm" in name or ".ln_" in name) and name.endswith("weight")))
    return state


def side_by_side(heads: np.ndarray) -> np.ndarray:
    """[head d_model width] as [d_model head*width]."""
    return np.concatenate(list(heads), 1)


def fill(tensor: torch.Tensor, values: np.ndarray) -> None:
    tensor.copy_(torch.from_numpy(np.ascontiguousarray(values)).to(tensor.dtype))
