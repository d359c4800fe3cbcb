"""Repeated random tokens: the stimulus on which induction heads show without help from language.

Elhage et al. 2021 (A Mathematical Framework for Transformer Circuits) and Olsson et al. 2022
(In-context Learning and Induction Heads) use the same stimulus.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window

SHORTEST, LONGEST = 25, 64
"""Bounds of the copied stretch in tokens. It varies between windows, so that no fixed distance
does an induction head's work; the longest window is 129 tokens."""
OUTSIDE = 32
"""Tokens that do not stand in a window, which it is compared with."""


def repeat_windows(
    vocabulary: Int[ndarray, " token"],
    bos: int,
    spell: Callable[[list[int]], list[str]],
    *,
    count: int,
    seed: int,
    max_length: int,
) -> list[Window]:
    """`count` windows `[bos, r, r]`, r of 25 to 64 random tokens, none of them twice in r.

    Args:
        vocabulary: token ids to draw from, without special tokens.
        bos: the beginning-of-text token.
        spell: gives the text of each token id.
        count: number of windows.
        seed: the same seed gives the same windows.
        max_length: the model's context; shorter contexts get shorter copies.

    >>> spell = lambda tokens: [f"<{token}>" for token in tokens]
    >>> (window,) = repeat_windows(np.arange(1, 40), 0, spell, count=1, seed=0, max_length=7)
    >>> n = window.copy_length
    >>> n, len(window), bool((window.tokens[1 : n + 1] == window.tokens[n + 1 :]).all())
    (3, 7, True)
    """
    longest = min(LONGEST, (max_length - 1) // 2, len(vocabulary))
    shortest = min(SHORTEST, longest)
    rng = np.random.default_rng(seed)
    windows = []
    for i in range(count):
        n = int(rng.integers(shortest, longest + 1))
        copied = rng.choice(vocabulary, size=n, replace=False)
        tokens = np.concatenate([[bos], copied, copied])
        strings = tuple(spell(tokens.tolist()))
        window = Window(
            f"repeat#{i}",
            tokens,
            strings,
            copy_length=n,
            stimulus="repeat",
            document=i,
            outside=_outside(vocabulary, copied, np.random.default_rng([seed, i])),
        )
        windows.append(window)
    return windows


def _outside(
    vocabulary: Int[ndarray, " token"], inside: Int[ndarray, " inside"], rng: np.random.Generator
) -> Int[ndarray, " outside"]:
    """Some of the vocabulary's other tokens; drawn beside the copies, which stay what they are."""
    drawn = rng.choice(vocabulary, size=min(len(vocabulary), OUTSIDE + len(inside)), replace=False)
    return drawn[~np.isin(drawn, inside)][:OUTSIDE]
