"""The control of syntactic relations: other query, same distance, key of the same word class.

Same distance, so that a head with a fixed offset gains nothing; a key of the same part of
speech, so that a head that likes nouns, or determiners, gains nothing either.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window, WordTable
from headscope.relations.controls import DRAWS
from headscope.relations.pairs import Pairs, no_pairs, span_pairs

# every relation of a window draws from the same unlinked word pairs
_unlinked: WeakKeyDictionary[Window, _Unlinked] = WeakKeyDictionary()


def same_distance_same_class(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Word pairs that no dependency links, at the target's distance and with a key of its class.

    Where the window has none of that class, any unlinked pair at that distance serves; where it
    has none at all, the query gets no control and does not count; nor do an encoder's later
    targets.
    """
    words = window.words
    targets = targets.where(targets.key < targets.owner)
    if window not in _unlinked:
        _unlinked[window] = _Unlinked(words)
    unlinked = _unlinked[window]
    key_word = np.searchsorted(words.first, targets.key, side="right") - 1
    # one draw per target word, not one per sub-token
    last = targets.key == words.last[key_word]
    owner, key_word = targets.owner[last], key_word[last]
    query, key, owner = unlinked.draw(
        words.last[np.searchsorted(words.last, owner)] - words.last[key_word],
        unlinked.classes[key_word],
        owner,
        rng,
    )
    if not len(query):
        return no_pairs()
    return span_pairs(words.last[query], words.first[key], words.last[key], owner)


class _Unlinked:
    """All word pairs (later word, earlier word) of a window without a dependency between them."""

    def __init__(self, words: WordTable) -> None:
        n = len(words)
        _, self.classes = np.unique(words.upos, return_inverse=True)
        self.class_count = int(self.classes.max(initial=0)) + 1
        governed = np.flatnonzero(words.head >= 0)
        ends = np.stack([governed, words.head[governed]])
        key, query = ends.min(0), ends.max(0)
        # no target lies farther apart than a link, and a long text has too many such pairs
        longest = int((words.last[query] - words.last[key]).max(initial=0))
        reach = np.arange(n) - np.searchsorted(words.last, words.last - longest)
        back = int(reach.max(initial=0))
        free = np.ones((n, back), bool)
        free[query, back - (query - key)] = False
        query, key = np.nonzero(free)
        key += query - back
        query, key = query[key >= 0], key[key >= 0]
        distance = words.last[query] - words.last[key]
        apart = (words.last[key] < words.first[query]) & (distance <= longest)
        query, key, distance = query[apart], key[apart], distance[apart]
        code = distance * self.class_count + self.classes[key]
        order = np.argsort(code, kind="stable")
        self.query, self.key, self.code = query[order], key[order], code[order]

    def draw(
        self,
        distance: Int[ndarray, " target"],
        word_class: Int[ndarray, " target"],
        owner: Int[ndarray, " target"],
        rng: np.random.Generator,
    ) -> tuple[ndarray, ndarray, ndarray]:
        """Rows of query words and key words for each target, with the target's owner."""
        code = distance * self.class_count
        low = np.searchsorted(self.code, code + word_class, side="left")
        high = np.searchsorted(self.code, code + word_class, side="right")
        any_low = np.searchsorted(self.code, code, side="left")
        any_high = np.searchsorted(self.code, code + self.class_count, side="left")
        low, high = np.where(high > low, low, any_low), np.where(high > low, high, any_high)
        is_drawn = np.repeat(high > low, DRAWS)
        low, high, owner = (np.repeat(x, DRAWS)[is_drawn] for x in (low, high, owner))
        row = low + (rng.random(len(low)) * (high - low)).astype(np.int64)
        return self.query[row], self.key[row], owner
