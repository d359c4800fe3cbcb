"""Words of content that mentions have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from headscope.corpus.document import Document, Mention, Word

_CONTENT = frozenset(("NOUN", "PROPN", "VERB", "ADJ", "NUM", "X"))
"""Word classes by which a mention can be recognised again; in Universal Dependencies' names."""


def shared_words(
    document: Document, mentions: Sequence[Mention]
) -> Bool[ndarray, "mention mention"]:
    """Mentions that share a word: "Margit Solheim" and "Solheim", or "a mayor" and "the mayor".

    Words are the same when they have the same form or lemma, whatever their case. A mention's head
    counts whatever its class, its other words when they have content: "the" is shared by too many.
    """
    words = [_words(document, mention) for mention in mentions]
    numbers = {word: i for i, word in enumerate(sorted(set().union(*words)))}
    holds = np.zeros((len(mentions), len(numbers)), np.float32)
    for row, mention_words in enumerate(words):
        holds[row, [numbers[word] for word in mention_words]] = 1
    return np.asarray(holds @ holds.T > 0)


def _words(document: Document, mention: Mention) -> set[str]:
    """The forms and lemmas of a mention's words of content, in lower case."""
    positions = range(mention.first, mention.last + 1)
    words = [
        document.words[i] for i in positions if i == mention.head or _content(document.words[i])
    ]
    return {text.lower() for word in words for text in (word.form, word.lemma or word.form)}


def _content(word: Word) -> bool:
    return word.upos in _CONTENT
