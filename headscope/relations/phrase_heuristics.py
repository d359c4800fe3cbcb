"""Simple rules about phrases: the last word of a class before the nearest adposition or mark."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

_CLASSES = {
    "NOUN": ("NOUN",),
    "VERB": ("VERB",),
    "name-or-noun": ("NOUN", "PROPN"),
    "nominal": ("NOUN", "PROPN", "PRON"),
    "verbal": ("VERB", "AUX"),
    "content-word": ("NOUN", "PROPN", "VERB", "ADJ", "ADV"),
    "function-word": ("ADP", "AUX", "CCONJ", "DET", "PART", "PRON", "SCONJ"),
}
_ANCHORS = {"adposition": "ADP", "conjunction": "CCONJ", "mark": "PUNCT"}


def by_phrase(upos: ndarray) -> Iterator[tuple[str, Int[ndarray, " word"]]]:
    """Rules by name, with what each picks at each word of these parts of speech."""
    near_word = {name: nearest(np.isin(upos, classes)) for name, classes in _CLASSES.items()}
    for anchor, anchor_class in _ANCHORS.items():
        anchor_word = nearest(upos == anchor_class)
        for name, near in near_word.items():
            yield f"{name}-before-{anchor}", np.where(anchor_word >= 0, near[anchor_word], -1)


def nearest(mask: Bool[ndarray, "*class word"]) -> Int[ndarray, "*class word"]:
    """For each word the nearest earlier one of those in a mask, −1 where there is none.

    >>> nearest(np.array([True, False, True, False])).tolist()
    [-1, 0, 0, 2]
    """
    words = mask.shape[-1]
    latest = np.full(mask.shape, -1)
    last = np.maximum.accumulate(np.where(mask, np.arange(words), -1), axis=-1)
    latest[..., 1:] = last[..., :-1]
    return latest


PHRASE_RULES = tuple(name for name, _ in by_phrase(np.empty(0, "U1")))
"""Names of the rules."""
