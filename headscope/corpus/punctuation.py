"""Marks that divide a text, told from those within words and numbers, and from symbols."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from headscope.corpus.document import Document, Word

_HYPHENS = frozenset("-\u2010\u2011")
_IN_NUMBERS = frozenset(".,:/'\u2019\u2013")
_UNKNOWN = frozenset(("", "_", "X"))


def divides(document: Document) -> Bool[ndarray, " word"]:
    """Mask of the words of a document that are marks and divide it.

    Not those with a letter or digit ("n't", "Dr.", "3.5"), nor those that are annotated as another
    class than punctuation ("%", "&"), nor a hyphen between two letters ("well-known"), nor a mark
    between two digits, which plain text takes for words of their own.
    """
    return np.array([_divides(document.text, word) for word in document.words], bool)


def _divides(text: str, word: Word) -> bool:
    if any(char.isalnum() for char in word.form):
        return False
    if word.upos != "PUNCT" and word.upos not in _UNKNOWN:
        return False
    before, after = text[max(word.start - 1, 0) : word.start], text[word.end : word.end + 1]
    if word.form in _HYPHENS:
        return not (before.isalnum() and after.isalnum())
    return not (word.form in _IN_NUMBERS and before.isdigit() and after.isdigit())
