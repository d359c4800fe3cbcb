"""A model in GPT-2's layout whose second layer matches tokens: weight by weight, the answer known.

Every token has a code of ±1, which is its unembedding too. A head of the first layer puts the code
of the token before into places of its own; heads of the second layer look for their own code there,
and so at what followed the same token before. One of them hands on what it sees, and the model
predicts it; another looks at just the same keys and writes nothing; a third writes what none reads.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

LAYERS, HEADS, WIDTH, CONTEXT = 2, 4, 96, 256
CODE, WAVES = 48, 16
D_MODEL = HEADS * WIDTH
HALF = D_MODEL // 2
WORD, BEFORE, UNREAD = slice(0, CODE), slice(CODE, 2 * CODE), slice(2 * CODE, 3 * CODE)
POSITION = slice(3 * CODE, 3 * CODE + 2 * WAVES)
CONSTANT = POSITION.stop
PREVIOUS, INDUCTION, DECOY, IDLE, AVERAGE = (0, 0), (1, 0), (1, 1), (1, 2), (1, 3)
"""Places of the planted heads; the last writes into places that are not unembedded."""


def save_matching(
    tokenizer,
    folder: Path,
    *,
    seed: int = 0,
    matched: int = CODE,
    average: float = 0.0,
    sink: bool = False,
) -> Path:
    """Write the model and its tokenizer.

    Args:
        tokenizer: of transformers.
        folder: where to write.
        seed: seeds the codes.
        average: how strongly the last head of the second layer, which looks at all tokens alike,
            writes what it reads into the words.
        sink: whether that head looks at the first token instead.
        matched: of how many places of the code the second layer's queries and keys are made.
    """
    rng = np.random.default_rng(seed)
    codes = rng.choice([-1.0, 1.0], (len(tokenizer), CODE))
    q, k, v, o = (np.zeros((LAYERS, HEADS, D_MODEL, WIDTH)) for _ in range(4))  # o: its transpose
    own = np.arange(CODE)
    step = np.pi * 2.0 ** (-np.arange(WAVES) / 2)
    cos, sin = POSITION.start + np.arange(WAVES), POSITION.start + WAVES + np.arange(WAVES)
    near = np.arange(WAVES)
    k[PREVIOUS][cos, near] = k[PREVIOUS][sin, near + WAVES] = 1.0
    # the addition theorems of cos(w(p − 1)) and sin(w(p − 1))
    q[PREVIOUS][cos, near] = q[PREVIOUS][sin, near + WAVES] = 30 * np.cos(step)
    q[PREVIOUS][sin, near], q[PREVIOUS][cos, near + WAVES] = 30 * np.sin(step), -30 * np.sin(step)
    v[PREVIOUS][own, own] = 1.0
    o[PREVIOUS][BEFORE.start + own, own] = 2.0
    used = own[:matched]
    for at, written, gain in ((INDUCTION, WORD, 3.0), (DECOY, None, 0.0), (IDLE, UNREAD, 3.0)):
        q[at][used, used] = 150.0 / matched
        k[at][BEFORE.start + used, used] = 1.0
        if written is not None:
            v[at][own, own] = 1.0
            o[at][written.start + own, own] = gain
    k[AVERAGE][cos, near], q[AVERAGE][CONSTANT, near] = 1.0, 30.0 * sink
    v[AVERAGE][own, own], o[AVERAGE][own, own] = 1.0, average
    o[:, :, HALF:] = -o[:, :, :HALF]
    network = _gpt2(codes, q, k, v, o, step)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _gpt2(codes, q, k, v, o, step) -> GPT2LMHeadModel:
    size = len(codes)
    config = GPT2Config(
        vocab_size=size,
        n_embd=D_MODEL,
        n_head=HEADS,
        n_layer=LAYERS,
        n_positions=CONTEXT,
        n_inner=4,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
    )
    model = GPT2LMHeadModel(config)
    state = model.state_dict()
    for name, tensor in state.items():
        tensor.fill_(float(".ln_" in name and name.endswith("weight")))
    table, unembedding, positions = (np.zeros((n, D_MODEL)) for n in (size, size, CONTEXT))
    table[:, WORD], table[:, CONSTANT] = codes, 4.0
    unembedding[:, WORD] = codes
    angle = np.arange(CONTEXT)[:, None] * step
    positions[:, POSITION] = np.concatenate([np.cos(angle), np.sin(angle)], 1)
    for each in (table, positions):
        each[:, HALF:] = -each[:, :HALF]
    _fill(state["transformer.wte.weight"], table)
    _fill(state["transformer.wpe.weight"], positions)
    _fill(state["lm_head.weight"], unembedding)
    for layer in range(LAYERS):
        at = f"transformer.h.{layer}.attn"
        joined = [np.concatenate(list(part[layer]), 1) for part in (q, k, v)]
        _fill(state[f"{at}.c_attn.weight"], np.concatenate(joined, 1))
        _fill(state[f"{at}.c_proj.weight"], np.concatenate(list(o[layer]), 1).T)
    return model


def _fill(tensor: torch.Tensor, values: np.ndarray) -> None:
    tensor.copy_(torch.from_numpy(np.ascontiguousarray(values)).to(tensor.dtype))
