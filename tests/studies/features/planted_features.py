"""A model whose residual stream is made of known features, and a head that joins two of them.

Tokens are of three classes by their number: queries, targets and others. Every token has the
feature `dense`; targets and others share `both`. The head gives a score to `sought` at a query with
`key` at a target. It gives as much, or more, to `dense` with `dense`, and to `sought` with `both`:
these say nothing about where it looks.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

from headscope.corpus.window import Window
from headscope.relations.pairs import Pairs, pairs
from headscope.relations.relation import Relation, TagThresholds

D_MODEL, HEADS, CONTEXT = 64, 2, 64
DENSE, SOUGHT, KEY, BOTH, OTHER, FILLER = range(6)
"""Features; queries and others have one more, so that all tokens have as many."""
NAMES = ("dense", "sought", "key", "both", "other", "filler")
FEATURES_OF = ((DENSE, SOUGHT, FILLER), (DENSE, KEY, BOTH), (DENSE, OTHER, BOTH))
"""Of the classes of tokens: a token's number modulo 3."""


def directions() -> torch.Tensor:
    """Orthonormal directions of no mean, so that the norm leaves them as they are."""
    rng = np.random.default_rng(3)
    basis = rng.normal(size=(D_MODEL, D_MODEL))
    basis[:, 0] = 1.0
    return torch.from_numpy(np.linalg.qr(basis)[0].T[1:].copy()).float()


def save_planted(tokenizer, folder: Path) -> Path:
    """Write the model, its tokenizer, and the dictionary `features.safetensors`."""
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=D_MODEL, n_head=HEADS, n_layer=1, n_positions=CONTEXT,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config)
    basis, half = directions(), D_MODEL // HEADS
    state = model.state_dict()
    with torch.no_grad():
        table = state["transformer.wte.weight"]
        for token in range(len(tokenizer)):
            noise = basis[len(NAMES) :].T @ torch.randn(len(basis) - len(NAMES)) * 0.05
            table[token] = 4 * basis[list(FEATURES_OF[token % 3])].sum(0) + noise
        state["transformer.wpe.weight"].zero_()
        weight = state["transformer.h.0.attn.c_attn.weight"].zero_()
        for place, (query, key, gain) in enumerate(
            [(SOUGHT, KEY, 2.0), (DENSE, DENSE, 6.0), (SOUGHT, BOTH, 3.0)]
        ):
            weight[:, place] = gain * basis[query]
            weight[:, D_MODEL + place] = basis[key]
        assert half > place
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    known = basis[: len(NAMES)]
    tensors = {"W_dec": known, "W_enc": known.T, "threshold": torch.ones(len(known))}
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "features.safetensors",
        metadata={"names": str(list(NAMES)).replace("'", '"')},
    )
    return folder


def windows(count: int, vocabulary: int) -> list[Window]:
    """Random tokens, a document each."""
    rng = np.random.default_rng(0)
    rows = rng.integers(1, vocabulary, (count, 40))
    return [
        Window(f"w{i}", row, tuple(f"t{token % 3}" for token in row), document=i)
        for i, row in enumerate(rows)
    ]


def _to_class(window: Window, number: int) -> Pairs:
    key, query = np.triu_indices(len(window), 1)
    wanted = (window.tokens[query] % 3 == 0) & (window.tokens[key] % 3 == number)
    return pairs(query[wanted], key[wanted])


def to_targets(window: Window) -> Pairs:
    """From each query to all targets before it."""
    return _to_class(window, 1)


def to_others(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """From each query to all others before it."""
    return _to_class(window, 2)


RELATION = Relation(
    "planted", "target", to_targets, to_others, TagThresholds(floor=0.1, source="", meaning="")
)
