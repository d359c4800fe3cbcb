"""Simple rules about phrases: ends of runs, clauses, words near others or beside them."""

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
_ANCHORS = {
    "adposition": ("ADP",),
    "conjunction": ("CCONJ",),
    "determiner": ("DET",),
    "mark": ("PUNCT",),
    "boundary": ("PUNCT", "SCONJ", "CCONJ"),
    "function-word": _CLASSES["function-word"],
    "adposition-verb-or-mark": ("ADP", "VERB", "PUNCT"),
}
"""Words beside which, or before the last of which, a rule looks."""
_WORDS = (3, 4, 6)


def by_phrase(
    upos: ndarray, lengths: Int[ndarray, " word"]
) -> Iterator[tuple[str, Int[ndarray, " word"]]]:
    """Rules by name, with what each picks at each word; what is no earlier word is no pick.

    Args:
        upos: parts of speech.
        lengths: letters of each word.
    """
    count = np.arange(len(upos))
    anchors = {name: np.isin(upos, classes) for name, classes in _ANCHORS.items()}
    clause = np.maximum.accumulate(np.where(anchors["boundary"], count, 0))
    last = {name: nearest(mask) for name, mask in anchors.items()}
    for name, classes in _CLASSES.items():
        mask = np.isin(upos, classes)
        near, following = nearest(mask), _following(mask)
        beside = np.pad(mask, 1)
        yield f"nearest-{name}-opening-a-run", nearest(mask & ~beside[:-2])
        yield f"nearest-{name}-closing-a-run", nearest(mask & ~beside[2:])
        for size in _WORDS:
            yield f"first-{name}-of-{size}-words", following[np.maximum(count - size, 0)]
        yield f"first-{name}-in-clause", following[clause]
        yield f"nearest-{name}-in-clause", np.where(near >= clause, near, -1)
        for anchor in ("adposition", "conjunction", "mark"):
            yield f"{name}-before-{anchor}", np.where(last[anchor] >= 0, near[last[anchor]], -1)
        after = last["determiner"] + 1
        yield f"{name}-after-determiner", np.where(after > 0, following[after], -1)
    for anchor, place in last.items():
        yield f"word-after-{anchor}", np.where(place >= 0, place + 1, -1)
        yield f"word-before-{anchor}", place - 1
    for size in _WORDS:
        before = count - np.arange(1, size + 1)[:, None]
        seen = np.where(before >= 0, lengths[np.maximum(before, 0)], -1)
        yield f"longest-of-{size}-words", count - 1 - seen.argmax(0)


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


def _following(mask: Bool[ndarray, " word"]) -> Int[ndarray, " place"]:
    """For each place of a word, and that behind the last, the first of a mask from there on."""
    marked = np.where(mask, np.arange(len(mask)), len(mask))
    following = np.minimum.accumulate(marked[::-1])[::-1]
    return np.append(np.where(following < len(mask), following, -1), -1)


PHRASE_RULES = tuple(name for name, _ in by_phrase(np.empty(0, "U1"), np.empty(0, np.int64)))
"""Names of the rules."""
