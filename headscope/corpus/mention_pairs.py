"""Pairs of mentions that may be of one entity, and those that share a word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from headscope.corpus.document import Document, Mention, Word

FEATURES = ("Number", "Gender", "Person")
"""Features that must agree (https://universaldependencies.org/u/feat/) if both are known.
A noun has no person: it stands for a third."""

_HE, _SHE, _IT = (f"Number=Sing|Gender={gender}|Person=3" for gender in ("Masc", "Fem", "Neut"))
_THEY = "Number=Plur|Person=3"
PRONOUNS = (
    dict.fromkeys(("he", "him", "his", "himself"), _HE)
    | dict.fromkeys(("she", "her", "hers", "herself"), _SHE)
    | dict.fromkeys(("it", "its", "itself"), _IT)
    | dict.fromkeys(("they", "them", "their", "theirs", "themselves"), _THEY)
    | dict.fromkeys(("i", "me", "my", "mine", "myself"), "Number=Sing|Person=1")
    | dict.fromkeys(("we", "us", "our", "ours", "ourselves"), "Number=Plur|Person=1")
    | dict.fromkeys(("you", "your", "yours", "yourself"), "Person=2")
)
"""English pronouns by their forms, for where the annotation says nothing of them."""


def agreement(document: Document, mentions: Sequence[Mention]) -> Bool[ndarray, "mention mention"]:
    """Mask of mentions that do not contradict each other in number, gender and person.

    >>> from headscope.corpus.document import Word
    >>> forms = ("Ann", "he", "she")
    >>> words = tuple(Word(f, 0, 1, 0, upos="PRON" if f != "Ann" else "PROPN") for f in forms)
    >>> mentions = [Mention("e", i, i, i) for i in range(3)]
    >>> agreement(Document("d", "", words), mentions).astype(int).tolist()
    [[1, 1, 1], [1, 1, 0], [1, 0, 1]]
    """
    known = [_features(document, mention) for mention in mentions]
    agrees = np.ones((len(known),) * 2, bool)
    for feature in FEATURES:
        value = np.array([features.get(feature, "") for features in known], "U")
        unknown = value == ""
        agrees &= unknown[:, None] | unknown[None, :] | (value[:, None] == value[None, :])
    return np.asarray(agrees)


def _features(document: Document, mention: Mention) -> dict[str, str]:
    head = document.words[mention.head]
    features = _parsed(head.feats)
    if head.upos == "PRON" and not features.keys() & set(FEATURES):
        features = _parsed(PRONOUNS.get(head.form.lower(), ""))
    if head.upos in ("NOUN", "PROPN"):
        features["Person"] = "3"
    inside = document.words[mention.first : mention.last + 1]
    if any(word.head == mention.head and word.deprel == "conj" for word in inside):
        features["Number"] = "Plur"  # Tom and Ann
    return features


def _parsed(feats: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in feats.split("|"))
    return {name: value for name, _, value in pairs if value}


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
