"""Repeated random tokens (Elhage et al. 2021, Olsson et al. 2022)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.stimuli.stimulus import (
    MAX_DOCUMENTS,
    MIN_DOCUMENTS,
    Stimulus,
    StimulusConfig,
    TextTokenizer,
)

SHORTEST, LONGEST = 25, 64
"""Bounds of the copied stretch in tokens. It varies between windows, so that no fixed distance
does an induction head's work; the longest window is 129 tokens."""
OUTSIDE = 32
"""Tokens that do not stand in a window, which it is compared with."""


def repeat_windows(
    vocabulary: Int[ndarray, " token"],
    tokenizer: TextTokenizer,
    *,
    max_length: int,
    seed: int,
    count: int = MAX_DOCUMENTS,
) -> list[Window]:
    """`count` windows `[bos, r, r]`, r of 25 to 64 random tokens, none of them twice in r."""
    frame = tokenizer.frame
    longest = min(LONGEST, (max_length - frame.closing_tokens - 1) // 2, len(vocabulary))
    shortest = min(SHORTEST, longest)
    rng = np.random.default_rng(seed)
    windows = []
    for i in range(count):
        # no token twice in r: one alone is right before each repeated token
        n = int(rng.integers(shortest, longest + 1))
        copied = rng.choice(vocabulary, size=n, replace=False)
        tokens = np.concatenate([[tokenizer.bos], copied, copied])
        strings = tuple(tokenizer.spell(tokens.tolist()))
        # other tokens of the vocabulary are drawn beside the copies, which stay what they are
        other_rng = np.random.default_rng([seed, i])
        candidate_count = min(len(vocabulary), OUTSIDE + len(copied))
        candidates = other_rng.choice(vocabulary, size=candidate_count, replace=False)
        outside = candidates[~np.isin(candidates, copied)][:OUTSIDE]
        window = Window(
            f"repeat#{i}",
            tokens,
            strings,
            copy_length=n,
            stimulus=REPEAT.name,
            document=i,
            outside=outside,
        )
        windows.append(frame.close(window))
    return windows


def _build(config: StimulusConfig) -> list[Window]:
    return repeat_windows(
        config.tokenizer.ordinary_tokens(config.vocabulary_size),
        config.tokenizer,
        max_length=config.max_length,
        seed=config.seed,
        count=config.documents,
    )


REPEAT = Stimulus(
    name="repeat",
    title="random tokens",
    build=_build,
    before_text=MIN_DOCUMENTS,
    any_language=True,
    example_windows=2,
    picture="repeated random tokens: the first {start} of a sequence, "
    "then the first {half} of its copy",
)
