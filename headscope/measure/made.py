"""Windows of what was made for a purpose, by the stimuli that relations ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.align import Cuts, cut_windows
from headscope.corpus.controlled.facts import STIMULUS as FACTS
from headscope.corpus.controlled.facts import fact_documents
from headscope.corpus.window import Window
from headscope.measure.stimuli import MOST_DOCUMENTS, Encoder, frame_of, plan_pairs, plan_repeats


class Tokens(Encoder, Protocol):
    """A tokenizer that says which tokens are no special ones."""

    def ordinary_tokens(self, vocabulary_size: int) -> Int[ndarray, " token"]: ...


class How(NamedTuple):
    """How windows are made."""

    tokenizer: Tokens
    vocabulary_size: int
    max_length: int
    """Longest window in tokens."""
    seed: int
    documents: int
    """Of each stimulus."""


def plan_facts(
    encoder: Encoder, *, max_length: int, seed: int, count: int = MOST_DOCUMENTS
) -> list[Window]:
    """Windows of what is said of several people and asked of one, those of a document one block.

    Texts that are longer than a window are left out.
    """
    frame, found = frame_of(encoder), []
    for number in range(count):
        for document in fact_documents(number, seed=seed):
            cut = cut_windows(
                encoder.encode(document),
                encoder.bos,
                encoder.bos_string,
                max_length=max_length - frame.room,
                cuts=Cuts(),
                stimulus=FACTS,
                number=number,
            )
            own = [frame.close(window) for window in cut]
            found += own if len(own) == 1 else []
    return found


def _repeats(how: How) -> list[Window]:
    tokens = how.tokenizer.ordinary_tokens(how.vocabulary_size)
    rest = {"max_length": how.max_length, "seed": how.seed, "count": how.documents}
    return plan_repeats(np.asarray(tokens), how.tokenizer, **rest)


def _pairs(how: How) -> list[Window]:
    rest = {"max_length": how.max_length, "seed": how.seed, "count": how.documents}
    return plan_pairs(how.tokenizer, **rest)


def _facts(how: How) -> list[Window]:
    rest = {"max_length": how.max_length, "seed": how.seed, "count": how.documents}
    return plan_facts(how.tokenizer, **rest)


MADE: dict[str, Callable[[How], list[Window]]] = {
    "repeat": _repeats,
    "pairs": _pairs,
    FACTS: _facts,
}
"""How the windows of each stimulus but text are made."""


def plan_made(stimuli: Collection[str], how: How) -> list[Window]:
    """The windows of these stimuli, text left out, one stimulus after the other."""
    return [window for name, make in MADE.items() if name in stimuli for window in make(how)]
