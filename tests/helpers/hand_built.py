"""Runs of heads that are written down by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

import headscope as hs


def run_of(
    *layers: str, name: str, size: int = 30, documents: int = 10, repeats: bool = True, **how: Any
) -> hs.Run:
    """A run on sequences of random words and their copies.

    Args:
        layers: a letter for each head: P puts 0.9 on the previous token, I puts 0.8 on the token
            after the current one's earlier copy, E looks evenly back, S looks at the first token.
        name: the model's.
        size: words of a sequence.
        documents: how many.
        repeats: False for words that never come again.
        how: further arguments of `score_patterns`.
    """
    length = 2 * size + 1
    a = np.zeros((len(layers), len(layers[0]), length, length))
    place, copy = np.arange(1, length), np.arange(size + 1, length)
    even = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
    for layer, kinds in enumerate(layers):
        for head, kind in enumerate(kinds):
            if kind == "P":
                a[layer, head, place, place - 1] = 0.9
            if kind == "I":
                a[layer, head, copy, copy - size + 1] = 0.8
            if kind == "E":
                a[layer, head] = even
    a[..., 0] += 1 - a.sum(-1)
    words = [f"w{i}" for i in range(size)] * 2 if repeats else [f"w{i}" for i in range(2 * size)]
    texts = [["<bos>", *(f"{word}-{i}" for word in words)] for i in range(documents)]
    return hs.score_patterns([a] * documents, None, texts, name=name, **how)
