"""Delimiter heads: punctuation, ends of sentences, line breaks, quotes."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.window import Window
from headscope.relations.controls import keys_from
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, earlier_keys, pairs
from headscope.relations.query_sampling import row_queries
from headscope.relations.relation import Relation, Threshold

THRESHOLD = 0.2
SOURCE = (
    "ours: a fifth of a head's attention, besides three times chance; Clark et al. 2019 (3.2) "
    "find over half of BERT's attention on [SEP] in some layers, where no first token takes it"
)
TIMES_CHANCE = 3.0

_SENTENCE_END = frozenset(".!?…。！？")
_SYMBOLS = frozenset("#%&*@/\\§¶†‡‰‱′″‴")
"""Marks by Unicode's classes that stand for words or for nothing, and divide no text."""
_OPEN_CLOSE = frozenset(("Ps", "Pe", "Pi", "Pf"))


@lru_cache(maxsize=1 << 17)
def kinds(token: str) -> frozenset[str]:
    """The delimiter kinds of a token's text; one of letters, digits, symbols or spaces has none.

    A token of several marks, such as `."`, is of the kind of each; `punctuation` is any token
    that holds marks and nothing else.

    >>> sorted(kinds('."')), sorted(kinds(" (")), sorted(kinds("word"))
    (['punctuation', 'quote-bracket', 'sentence-end'], ['punctuation', 'quote-bracket'], [])
    """
    # a line break is a delimiter of its own, spaces around a mark count for nothing
    text = token.strip(" \t")
    if text and not text.strip("\r\n"):
        return frozenset({"newline"})
    text = text.strip()
    categories = [unicodedata.category(char) for char in text]
    if not text or not all(category.startswith("P") for category in categories):
        return frozenset()
    if not _SYMBOLS.isdisjoint(text):
        return frozenset()
    # a token of several marks is of the kind of each
    names = {"punctuation"}
    if any(char in _SENTENCE_END for char in text):
        names.add("sentence-end")
    if any(c in _OPEN_CLOSE or char in "\"'`" for c, char in zip(categories, text, strict=True)):
        names.add("quote-bracket")
    return frozenset(names)


def earlier_delimiters(window: Window, kind: str) -> Pairs:
    """Every query with all earlier tokens of this kind, in an encoder with all others."""
    queries = row_queries(window)
    keys = _positions(window, lambda kinds: kind in kinds)
    is_other = queries[:, None] != keys[None, :]
    row, column = np.nonzero(is_other)
    return pairs(queries[row], keys[column], attention_kind=window.attention_kind)


def turn_marks(window: Window) -> Pairs:
    """Every query with the special tokens and line breaks of the chat template before it.

    The first token is left out.
    """
    return earlier_keys(row_queries(window), window.turn_marks)


def no_delimiters(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, earlier keys that are neither a delimiter of any kind nor the first token.

    In an encoder also later keys, without the closing token.
    """
    return keys_from(window, _positions(window, lambda kinds: not kinds), targets, rng)


def kinds_of(window: Window) -> list[frozenset[str]]:
    """The delimiter kinds of each token of a window; none within a word or a number."""
    return window.once(_kinds_of)


def _kinds_of(window: Window) -> list[frozenset[str]]:
    by_token = [kinds(token) for token in window.strings]
    for position in window.inner:
        by_token[position] = frozenset()
    return by_token


def _positions(
    window: Window, holds: Callable[[frozenset[str]], bool]
) -> Int[ndarray, " position"]:
    """Positions of the text's tokens whose kinds meet a condition."""
    kinds_of_text = kinds_of(window)[: window.stop]
    positions = [position for position, kinds in enumerate(kinds_of_text) if holds(kinds)]
    # the first token is an attention sink
    return np.array([position for position in positions if position > 0], np.int64)


def _row(kind: str, meaning: str) -> Relation:
    return Relation(
        "delimiter",
        kind,
        partial(earlier_delimiters, kind=kind),
        no_delimiters,
        Threshold(THRESHOLD, SOURCE, meaning, times_chance=TIMES_CHANCE),
    )


_MEANINGS = {
    "punctuation": ("earlier punctuation", "punctuation"),
    "sentence-end": ("ends of earlier sentences", "ends of sentences"),
    "newline": ("earlier line breaks", "line breaks"),
    "quote-bracket": ("earlier quotes and brackets", "quotes and brackets"),
}
"""Meaning of each kind for a causal model and for an encoder."""

TURN = Relation(
    "delimiter",
    "turn",
    turn_marks,
    no_delimiters,
    Threshold(
        THRESHOLD, SOURCE, "the chat template's marks and line breaks", times_chance=TIMES_CHANCE
    ),
    has_hits=False,
    of_template=True,
)
"""Asked of texts in a chat template alone."""

TYPE = HeadType(
    name="delimiter",
    letter="D",
    order=40,
    colour="#56b4e9",
    relations=tuple(_row(kind, meaning) for kind, (meaning, _) in _MEANINGS.items()),
    relations_by_kind={
        BIDIRECTIONAL: tuple(_row(kind, meaning) for kind, (_, meaning) in _MEANINGS.items())
    },
    chat_relations=(TURN,),
    looks_at="punctuation, ends of sentences, line breaks, quotes",
    control_keys="keys that are not delimiters",
    behaviour="text",
)
