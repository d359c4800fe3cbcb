"""Delimiter heads: punctuation, ends of sentences, line breaks, quotes."""

from __future__ import annotations

import unicodedata
from functools import lru_cache, partial

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.asked import row_queries
from headscope.relations.controls import keys_from
from headscope.relations.pairs import Pairs, pairs
from headscope.relations.relation import Relation, Rule
from headscope.relations.types import HeadType

FLOOR = 0.2
SOURCE = (
    "ours: a fifth of a head's attention, beside three times chance; Clark et al. 2019 (3.2) "
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
    text = token.strip(" \t")
    if text and not text.strip("\r\n"):
        return frozenset({"newline"})
    text = text.strip()
    categories = [unicodedata.category(char) for char in text]
    if not text or not all(category.startswith("P") for category in categories):
        return frozenset()
    if not _SYMBOLS.isdisjoint(text):
        return frozenset()
    found = {"punctuation"}
    if any(char in _SENTENCE_END for char in text):
        found.add("sentence-end")
    if any(c in _OPEN_CLOSE or char in "\"'`" for c, char in zip(categories, text, strict=True)):
        found.add("quote-bracket")
    return frozenset(found)


def earlier_delimiters(window: Window, kind: str) -> Pairs:
    """Every query with all earlier tokens of this kind, in an encoder with all others."""
    queries, keys = row_queries(window), np.flatnonzero(_mask(window, kind))
    if not window.both_ways:
        return earlier_keys(queries, keys)
    row, column = np.nonzero(queries[:, None] != keys[None, :])
    return pairs(queries[row], keys[column], later=True)


def earlier_keys(queries: ndarray, keys: ndarray) -> Pairs:
    """Every query with all of these keys that come before it.

    >>> found = earlier_keys(np.arange(4), np.array([1, 2]))
    >>> list(zip(found.query.tolist(), found.key.tolist()))
    [(2, 1), (3, 1), (3, 2)]
    """
    row, column = np.nonzero(queries[:, None] > keys[None, :])
    return pairs(queries[row], keys[column])


def no_delimiters(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, earlier keys that are no delimiter of any kind, nor the first token.

    In an encoder later keys too, and not what closes the text.
    """
    plain = np.array([not own for own in kinds_of(window)])
    plain[0] = False
    plain[window.stop :] = False
    return keys_from(np.flatnonzero(plain), targets, rng, later=window.both_ways)


def kinds_of(window: Window) -> list[frozenset[str]]:
    """The delimiter kinds of each token of a window; none within a word or a number."""
    found = [kinds(token) for token in window.strings]
    for position in window.inner:
        found[position] = frozenset()
    return found


def _mask(window: Window, kind: str) -> Bool[ndarray, " token"]:
    mask = np.array([kind in own for own in kinds_of(window)])
    mask[0] = False
    mask[window.stop :] = False
    return mask


def _row(kind: str, meaning: str) -> Relation:
    find = partial(earlier_delimiters, kind=kind)
    return Relation(
        "delimiter",
        kind,
        find,
        no_delimiters,
        Rule(FLOOR, SOURCE, meaning, times_chance=TIMES_CHANCE),
    )


_MEANING = {
    "punctuation": "earlier punctuation",
    "sentence-end": "ends of earlier sentences",
    "newline": "earlier line breaks",
    "quote-bracket": "earlier quotes and brackets",
}

_ON_BOTH_SIDES = {
    "punctuation": "punctuation",
    "sentence-end": "ends of sentences",
    "newline": "line breaks",
    "quote-bracket": "quotes and brackets",
}

RELATIONS = [_row(kind, meaning) for kind, meaning in _MEANING.items()]

TYPE = HeadType(
    name="delimiter",
    letter="D",
    colour="#56b4e9",
    marker="s",
    relations=tuple(RELATIONS),
    both_ways=tuple(_row(kind, meaning) for kind, meaning in _ON_BOTH_SIDES.items()),
    looks_at="punctuation, ends of sentences, line breaks, quotes",
    rivals="same query, keys that are no delimiter",
    behaviour="text",
)
