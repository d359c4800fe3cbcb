"""Models built weight by weight, in GPT-2's and GPT-NeoX's layout, so that the answer is known.

Each word's embedding holds a random code of its own, its features, and what keeps all embeddings
of one length; every coordinate comes again with the other sign, so that a layer norm is only a
constant factor. GPT-2's positions are waves of many lengths; GPT-NeoX's are its rotary ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.models.quiet import quiet
from headscope.studies.validation.heads import HEADS, PlantedHead
from headscope.studies.validation.words import FEATURES, features, save_tokenizer

LAYOUTS = ("gpt2", "gpt_neox")
LAYERS, PER_LAYER, D_HEAD, CONTEXT = 2, 10, 104, 256
D_MODEL = PER_LAYER * D_HEAD
CODE, WAVES = 64, 16
MOST_FEATURES = 6
HALF = CODE + len(FEATURES) + 1 + CODE + 2 * WAVES
# places in the first half of the residual stream
WORD = slice(0, CODE)
TRAITS = slice(CODE, CODE + len(FEATURES))
FILLER = CODE + len(FEATURES)
SCRATCH = slice(FILLER + 1, FILLER + 1 + CODE)
POSITION = slice(FILLER + 1 + CODE, HALF)


def save_planted(
    layout: str, words: list[str], folder: Path, *, noise: float = 0.0, seed: int = 0
) -> Path:
    """Write a planted model and its tokenizer in Hugging Face layout.

    Args:
        layout: `gpt2` or `gpt_neox`.
        words: the vocabulary, special tokens first.
        folder: where to write.
        noise: standard deviation of normal noise on every Q, K, V and O weight, in units of the
            root mean square of the first layer's weights of that kind.
        seed: seeds the word codes, the random heads and the noise.
    """
    rng = np.random.default_rng(seed)
    rotary = layout == "gpt_neox"
    q, k, v, o = _attention(rng, rotary)
    for part in (q, k, v, o):
        size = np.sqrt((part.weight[0] ** 2).mean())
        part.weight += rng.normal(0, noise * size, part.weight.shape)
    model = (_gpt_neox if rotary else _gpt2)(len(words), _embedding(words, rng), q, k, v, o)
    with quiet():
        model.save_pretrained(folder)
    save_tokenizer(words, folder, context=CONTEXT)
    return folder


class _Matrices:
    """A layer × head stack of maps from the residual stream, with biases."""

    def __init__(self, out: int = D_HEAD, into: int = D_MODEL) -> None:
        self.weight = np.zeros((LAYERS, PER_LAYER, into, out))
        self.bias = np.zeros((LAYERS, PER_LAYER, out))


def _attention(rng: np.random.Generator, rotary: bool) -> tuple[_Matrices, ...]:
    q, k, v = _Matrices(), _Matrices(), _Matrices()
    o = _Matrices(out=D_MODEL, into=D_HEAD)
    places = dict.fromkeys(range(LAYERS), 0)
    for head in HEADS:
        at = (head.layer, places[head.layer])
        places[head.layer] += 1
        _set_scores(head, at, q, k, rng, rotary)
        if head.copies:
            v.weight[at][WORD, :CODE] = np.eye(CODE)
            o.weight[at][:CODE, SCRATCH] = np.eye(CODE)
            o.weight[at][:CODE, HALF + SCRATCH.start : HALF + SCRATCH.stop] = -np.eye(CODE)
    # Hugging Face divides scores by the root of d_head
    q.weight *= np.sqrt(D_HEAD)
    q.bias *= np.sqrt(D_HEAD)
    return q, k, v, o


def _set_scores(
    head: PlantedHead,
    at: tuple[int, int],
    q: _Matrices,
    k: _Matrices,
    rng: np.random.Generator,
    rotary: bool,
) -> None:
    """Fill a head's channels: first the distance, which rotary embedding turns, then the rest."""
    far = head.offset * wave_lengths(rotary)
    # rotary waves are longer, so the same gain is less sharp
    gain = head.near / WAVES * (ROTARY_GAIN if rotary else 1)
    if rotary:
        k.bias[at][:WAVES] = 1
        q.bias[at][:WAVES], q.bias[at][WAVES : 2 * WAVES] = gain * np.cos(far), -gain * np.sin(far)
    else:
        cos, sin = np.arange(WAVES), np.arange(WAVES, 2 * WAVES)
        k.weight[at][POSITION, : 2 * WAVES] = np.eye(2 * WAVES)
        turned = np.zeros((2 * WAVES, 2 * WAVES))
        turned[cos, cos] = turned[sin, sin] = gain * np.cos(far)
        # the addition theorems of cos(w(p − d)) and sin(w(p − d))
        turned[sin, cos], turned[cos, sin] = gain * np.sin(far), -gain * np.sin(far)
        q.weight[at][POSITION, : 2 * WAVES] = turned
    channel = 2 * WAVES
    if head.same:
        q.weight[at][WORD, channel : channel + CODE] = np.eye(CODE) * head.same_gain / CODE
        source = SCRATCH if head.same == "previous" else WORD
        k.weight[at][source, channel : channel + CODE] = np.eye(CODE)
        channel += CODE
    for query, key, score in head.fits:
        k.weight[at][TRAITS.start + FEATURES.index(key), channel] = 1
        if query is None:
            q.bias[at][channel] = score
        else:
            q.weight[at][TRAITS.start + FEATURES.index(query), channel] = score
        channel += 1
    if head.random:
        for part in (q, k):
            part.weight[at] = rng.normal(0, head.random / 8, part.weight[at].shape)


def wave_lengths(rotary: bool) -> Float[ndarray, " wave"]:
    """Angular frequencies of the position waves, from the shortest to the longest."""
    step = np.arange(WAVES)
    return np.asarray(ROTARY_BASE ** (-step / WAVES) if rotary else np.pi * 2.0 ** (-step / 2))


ROTARY_BASE, ROTARY_GAIN = 256.0, 2.0


def _embedding(words: list[str], rng: np.random.Generator) -> Float[ndarray, "word d_model"]:
    table = np.zeros((len(words), D_MODEL))
    table[:, WORD] = rng.choice([-1.0, 1.0], (len(words), CODE))
    traits = features(words)
    table[:, TRAITS] = traits
    table[:, FILLER] = np.sqrt(MOST_FEATURES + 1 - traits.sum(1))
    return _mirrored(table)


def _mirrored(table: Float[ndarray, "row d_model"]) -> Float[ndarray, "row d_model"]:
    table[:, HALF : 2 * HALF] = -table[:, :HALF]
    return table


def _norm_gains(rotary: bool) -> list[float]:
    """What turns a layer norm's output back into its input, layer by layer."""
    length = CODE + MOST_FEATURES + 1 + (0 if rotary else WAVES)
    # what the previous-token head writes has the length of one code
    return [float(np.sqrt(2 * (length + CODE * layer) / D_MODEL)) for layer in range(LAYERS)]


def _gpt2(
    size: int, embedding: ndarray, q: _Matrices, k: _Matrices, v: _Matrices, o: _Matrices
) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=size,
            n_embd=D_MODEL,
            n_head=PER_LAYER,
            n_layer=LAYERS,
            n_inner=4,
            n_positions=CONTEXT,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    angle = np.arange(CONTEXT)[:, None] * wave_lengths(rotary=False)
    positions = np.zeros((CONTEXT, D_MODEL))
    positions[:, POSITION] = np.concatenate([np.cos(angle), np.sin(angle)], 1)
    state = _silenced(model)
    _fill(state["transformer.wte.weight"], embedding)
    _fill(state["transformer.wpe.weight"], _mirrored(positions))
    for layer, gain in enumerate(_norm_gains(rotary=False)):
        at = f"transformer.h.{layer}"
        state[f"{at}.ln_1.weight"].fill_(gain)
        joined = [_side_by_side(m.weight[layer]) for m in (q, k, v)]
        _fill(state[f"{at}.attn.c_attn.weight"], np.concatenate(joined, 1))
        biases = np.concatenate([m.bias[layer].ravel() for m in (q, k, v)])
        _fill(state[f"{at}.attn.c_attn.bias"], biases)
        _fill(state[f"{at}.attn.c_proj.weight"], o.weight[layer].reshape(-1, D_MODEL))
    return model


def _gpt_neox(
    size: int, embedding: ndarray, q: _Matrices, k: _Matrices, v: _Matrices, o: _Matrices
) -> Any:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    model = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=size,
            hidden_size=D_MODEL,
            num_attention_heads=PER_LAYER,
            num_hidden_layers=LAYERS,
            intermediate_size=4,
            max_position_embeddings=CONTEXT,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": ROTARY_BASE,
                "partial_rotary_factor": 2 * WAVES / D_HEAD,
            },
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    state = _silenced(model)
    _fill(state["gpt_neox.embed_in.weight"], embedding)
    for layer, gain in enumerate(_norm_gains(rotary=True)):
        at = f"gpt_neox.layers.{layer}"
        state[f"{at}.input_layernorm.weight"].fill_(gain)
        # rows go head by head, each with its q, k and v
        stacked = np.stack([m.weight[layer] for m in (q, k, v)], 1)
        rows = stacked.transpose(0, 1, 3, 2).reshape(-1, D_MODEL)
        _fill(state[f"{at}.attention.query_key_value.weight"], rows)
        biases = np.stack([m.bias[layer] for m in (q, k, v)], 1).ravel()
        _fill(state[f"{at}.attention.query_key_value.bias"], biases)
        _fill(state[f"{at}.attention.dense.weight"], o.weight[layer].reshape(-1, D_MODEL).T)
    return model


def _silenced(model: Any) -> dict[str, Tensor]:
    """All weights at zero but the norms' gains, ready to be filled in place."""
    state: dict[str, Tensor] = model.state_dict()
    for name, tensor in state.items():
        tensor.fill_(float("norm" in name or ".ln_" in name) if name.endswith("weight") else 0.0)
    return state


def _side_by_side(weight: Float[ndarray, "head into out"]) -> Float[ndarray, "into all"]:
    return weight.transpose(1, 0, 2).reshape(weight.shape[1], -1)


def _fill(tensor: Tensor, values: ndarray) -> None:
    tensor.copy_(torch.from_numpy(np.ascontiguousarray(values)).to(tensor.dtype))
