"""Small models that hold one circuit, written down by hand: which head reads what, and from where.

The residual stream has slots: the word's code, its position, what heads write (`A`, `B`, `OUT`),
and a constant that makes the norms almost the same everywhere. The unembedding reads `OUT`.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from tests.oracles.network import (
    HeadMaps,
    NetworkSize,
    mirrored,
    planted_config,
    save_network,
)
from tests.oracles.words import BOS, UNKNOWN, save_tokenizer

WORDS = [f"w{i}" for i in range(10)]
FILLERS = ["the", "and", "to"]
CONTEXT, LAYERS, HEADS, WIDTH = 32, 3, 4, 32
POSITIONS = 12
"""Positions that have a code."""
HALF = HEADS * WIDTH // 2
WORD, POSITION = slice(0, 10), slice(10, 22)
A, B, OUT = slice(22, 32), slice(32, 42), slice(42, 52)
UNREAD = slice(52, 62)
CONSTANT = 63
BALLAST = 30.0
ROOT = np.sqrt(WIDTH)
SURE = 40.0
"""Score of a key that is attended to."""
SINK = 20.0
"""Score of the first token, which takes the attention of queries that look for nothing."""


@dataclass(eq=False)
class Plan:
    """A model in the making; every head attends to the first token and writes nothing."""

    maps: list[HeadMaps] = field(init=False)

    def __post_init__(self) -> None:
        d_model = HEADS * WIDTH
        self.maps = [HeadMaps(LAYERS, HEADS, into=d_model, out=WIDTH) for _ in "qkv"]
        self.maps.append(HeadMaps(LAYERS, HEADS, into=WIDTH, out=d_model))
        q, k, *_ = self.maps
        q.weight[:, :, CONSTANT, -1] = SINK * ROOT / BALLAST
        k.weight[:, :, POSITION.start, -1] = 1.0

    def at_positions(self, head: tuple[int, int], pairs: dict[int, int]) -> None:
        """Attend from some positions to others."""
        q, k, *_ = self.maps
        for query, key in pairs.items():
            q.weight[head][POSITION.start + query, key] = SURE * ROOT
            k.weight[head][POSITION.start + key, key] = 1.0

    def by_content(
        self, head: tuple[int, int], query: slice, key: slice, score: float = SURE
    ) -> None:
        """Attend to keys whose code in a slot is that of the query in another slot."""
        q, k, *_ = self.maps
        codes = np.arange(10)
        q.weight[head][np.arange(query.start, query.stop), codes] = score * ROOT
        k.weight[head][np.arange(key.start, key.stop), codes] = 1.0

    def copies(self, head: tuple[int, int], read: slice, write: slice, size: float = 1.0) -> None:
        """Write what it reads in a slot into another one."""
        *_, v, o = self.maps
        codes = np.arange(10)
        v.weight[head][np.arange(read.start, read.stop), codes] = 1.0
        o.weight[head][codes, np.arange(write.start, write.stop)] = size

    def save(self, folder: Path) -> Path:
        """Write the model and its tokenizer."""
        vocabulary = [BOS, UNKNOWN, *WORDS, *FILLERS]
        d_model = HEADS * WIDTH
        table = np.zeros((len(vocabulary), d_model))
        table[:, CONSTANT] = BALLAST
        for number, word in enumerate(vocabulary):
            if word in WORDS:
                table[number, int(word[1:])] = 1.0
        positions = np.zeros((CONTEXT, d_model))
        positions[np.arange(POSITIONS), POSITION.start + np.arange(POSITIONS)] = 1.0
        written = deepcopy(self.maps)
        q, k, v, o = written
        for maps in (q, k, v):  # the stream is mirrored, so that its mean is 0
            maps.weight[:, :, HALF:] = -maps.weight[:, :, :HALF]
            maps.weight /= 2
        o.weight[..., HALF:] = -o.weight[..., :HALF]
        size = NetworkSize(len(vocabulary), LAYERS, HEADS, WIDTH, CONTEXT)
        gain = BALLAST / np.sqrt(HALF)
        config = planted_config("gpt2", size, {})
        config.tie_word_embeddings = False
        save_network(
            config,
            written,
            folder,
            embedding=mirrored(table, HALF),
            positions=mirrored(positions, HALF),
            gains=[gain] * LAYERS,
        )
        network = AutoModelForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            network.transformer.ln_f.weight.fill_(gain)
            network.lm_head.weight.zero_()
            for code in range(10):
                network.lm_head.weight[2 + code, OUT.start + code] = 1.0
        network.save_pretrained(folder)
        save_tokenizer(vocabulary, folder, context=CONTEXT)
        return folder


def rows(template: str, corrupt: str, answer: str, wrong: str, *, count: int = 24) -> list[dict]:
    """Prompts of a template in which {0}, {1}, … are words drawn anew for each."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        words = rng.permutation(WORDS).tolist()
        made.append(
            {
                "prompt": template.format(*words),
                "answer": " " + answer.format(*words),
                "wrong": " " + wrong.format(*words),
                "corrupt": corrupt.format(*words),
            }
        )
    return made
