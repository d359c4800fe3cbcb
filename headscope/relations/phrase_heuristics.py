"""Simple rules about phrases: where runs of a class begin and end, and what stood before a mark."""

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
    anchors = {name: nearest(upos == anchor) for name, anchor in _ANCHORS.items()}
    for name, classes in _CLASSES.items():
        mask = np.isin(upos, classes)
        beside, near = np.pad(mask, 1), nearest(mask)
        yield f"nearest-{name}-opening-a-run", nearest(mask & ~beside[:-2])
        yield f"nearest-{name}-closing-a-run", nearest(mask & ~beside[2:])
        for anchor, place in anchors.items():
            yield f"{name}-before-{anchor}", np.where(place >= 0, near[place], -1)


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
