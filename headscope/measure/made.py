"""Windows of what was made for a purpose, by the stimuli that relations ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.align import Cuts, cut_windows
from headscope.corpus.controlled.facts import STIMULUS as FACTS
from headscope.corpus.controlled.facts import fact_documents
from headscope.corpus.controlled.long_words import LONG_WORDS
from headscope.corpus.controlled.word_repeats import STIMULUS as WORDS
from headscope.corpus.controlled.word_repeats import word_repeats
from headscope.corpus.document import Document
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


def plan_words(
    encoder: Encoder, *, max_length: int, seed: int, count: int = MOST_DOCUMENTS
) -> list[Window]:
    """Windows of repeated random words of several tokens, each a block of its own.

    None where the tokenizer spells too few words with several tokens.
    """
    frame = frame_of(encoder)
    how = {"count": count, "seed": seed, "max_length": max_length - frame.room}
    found = word_repeats(spelled_within(LONG_WORDS, encoder), encoder.bos, encoder.spell, **how)
    return [frame.close(window) for window in found]


def spelled_within(words: Sequence[str], encoder: Encoder) -> list[list[int]]:
    """The tokens of each word as within a text; words that share a token with another fall away."""
    text = " ".join(["It", *words])
    tokenized = encoder.encode(Document("words", text, ()))
    ends = np.cumsum([len(word) + 1 for word in words]) + len("It")
    starts = ends - [len(word) for word in words]
    first = np.searchsorted(tokenized.offsets[:, 1], starts, side="right")
    last = np.searchsorted(tokenized.offsets[:, 0], ends, side="left") - 1
    found = []
    for word, a, b in zip(words, first.tolist(), last.tolist(), strict=True):
        if a <= b and text[tokenized.offsets[a, 0] : tokenized.offsets[b, 1]].strip() == word:
            found.append([int(token) for token in tokenized.tokens[a : b + 1]])
    return found


def _repeats(encoder: Tokens, how: How, **rest: int) -> list[Window]:
    tokens = encoder.ordinary_tokens(how.vocabulary_size)
    return plan_repeats(np.asarray(tokens), encoder, **rest)


_PLANS: dict[str, Callable[..., list[Window]]] = {
    "pairs": plan_pairs,
    FACTS: plan_facts,
    WORDS: plan_words,
}


def plan_made(stimuli: Collection[str], how: How) -> list[Window]:
    """The windows of these stimuli, text left out, one stimulus after the other."""
    rest = {"max_length": how.max_length, "seed": how.seed, "count": how.documents}
    found = _repeats(how.tokenizer, how, **rest) if "repeat" in stimuli else []
    for name, plan in _PLANS.items():
        if name in stimuli:
            found += plan(how.tokenizer, **rest)
    return found
