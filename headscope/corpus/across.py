"""A source and its target as one window: the target's queries look at the source's tokens."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import START, Window, WordTable

NO_LINKS = np.empty((0, 2), np.int64)


def joined(source: Window, target: Window, links: Int[ndarray, "link 2"] = NO_LINKS) -> Window:
    """The target behind its source, so that every key comes before its query.

    Args:
        source: as an encoder reads it.
        target: as a decoder reads it; its first token is where that begins.
        links: words that translate each other, as rows of the two tables of words.

    >>> one = Window("w", np.array([5, 6, 1]), ("a", "b", "</s>"))
    >>> both = joined(one, Window("w", np.array([9, 7]), ("<s>", "c")))
    >>> both.source, both.strings
    (3, ('a', 'b', '</s>', '<s>', 'c'))
    """
    place = len(source)
    return replace(
        source,
        tokens=np.concatenate([source.tokens, [START], target.tokens[1:]]),
        strings=(*source.strings, *target.strings),
        words=_words(source.words, target.words, place),
        both_ways=False,
        ends=0,
        source=place,
        links=links + np.array([0, len(source.words)]),
    )


def _words(source: WordTable, target: WordTable, place: int) -> WordTable:
    """Both tables, the target's words behind the source's."""
    last = int(source.sentence.max(initial=-1))
    moved = replace(
        target,
        first=target.first + place,
        last=target.last + place,
        sentence=target.sentence + last + 1,
        head=np.where(target.head >= 0, target.head + len(source), -1),
    )
    names = [each.name for each in fields(WordTable)]
    return WordTable(
        **{name: np.concatenate([getattr(source, name), getattr(moved, name)]) for name in names}
    )
