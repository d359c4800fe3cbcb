"""Classes of cells, on a sentence whose words are counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.corpus.align import window_of_tokens
from headscope.corpus.document import Document, Word
from headscope.measure.surface import VIEWS, Surface
from tests.helpers.prose import prose_windows

WORDS = 60


def last_row(view: int, upos: str = "NOUN") -> np.ndarray:
    """Classes of the cells of the last of 60 words, from the nearest word to the farthest."""
    words = tuple(Word("ab", 3 * i, 3 * i + 2, sentence=0, upos=upos) for i in range(WORDS))
    document = Document("d", " ".join(["ab"] * WORDS), words)
    window = window_of_tokens(["<s>", *(f" {word.form}" for word in words)], document)
    surface = Surface(window, np.array([WORDS]))
    return VIEWS[view](surface)[0, 1:WORDS][::-1]


@pytest.mark.parametrize(
    ("view", "starts"),
    [
        (0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 20, 40]),  # distance in words
        (1, [1, 2, 3, 4]),  # rank among words of the class
        # the first, the second and the third word of the class from either end of the sentence;
        # the nearest key is the second from the end
        (2, [1, 2, 58, 59]),
        (3, [1, 2, 3]),  # rank among copies of the form
    ],
)
def test_classes_begin_where_the_limits_say(view, starts):
    classes = last_row(view)
    begins = 1 + np.flatnonzero(np.diff(classes, prepend=classes[0] - 1))
    assert begins.tolist() == starts


@pytest.mark.parametrize("view", [0, 1, 3])
def test_keys_after_a_query_have_as_many_classes_as_those_before_it_and_others(view):
    words = tuple(Word("ab", 3 * i, 3 * i + 2, sentence=0, upos="NOUN") for i in range(2 * WORDS))
    document = Document("d", " ".join(["ab"] * len(words)), words)
    window = window_of_tokens(["<s>", *(f" {word.form}" for word in words)], document)
    classes = VIEWS[view](Surface(window, np.array([WORDS])))[0]
    earlier, later = set(classes[1:WORDS].tolist()), set(classes[WORDS + 1 :].tolist())
    assert earlier.isdisjoint(later)
    assert len(earlier) == len(later) > 2


ANCHORS = {
    6: ("PUNCT", "SCONJ", "CCONJ"),
    7: ("DET",),
    8: ("ADP",),
    9: ("VERB", "AUX"),
    10: ("NOUN", "PROPN", "PRON"),
    11: ("CCONJ",),
}
"""Parts of speech of the anchors of a view."""
RELATIVE = ("that", "which", "who", "whom", "whose", "to")
COARSE = (("NOUN", "PROPN", "PRON"), ("VERB", "AUX"), ("ADJ", "ADV", "NUM"), ("PUNCT", "SYM"))


def place_in_segment(key: int, kinds: list[object], segments: list[int]) -> int:
    """Words of the key's kind in its segment that are nearer to its beginning, 2 at most."""
    before = range(key)
    return min(2, sum(kinds[i] == kinds[key] and segments[i] == segments[key] for i in before))


@pytest.mark.parametrize("view", ANCHORS)
def test_anchors_divide_a_text_as_a_slow_loop_says(view):
    """Cells are of one class if they agree in all that the loop counts."""
    (window,) = prose_windows(150)[:1]
    words = window.words
    rows = Surface(window, np.zeros(0, np.int64)).word.tolist()  # −1 for a token of no word
    size = len(rows)
    upos = [words.upos[row] if row >= 0 else "" for row in rows]
    lemmas = [words.lemma[row] if row >= 0 else "" for row in rows]
    is_anchor = [upos[i] in ANCHORS[view] for i in range(size)]
    if view == 6:
        is_anchor = [is_anchor[i] or lemmas[i] in RELATIVE for i in range(size)]
    kinds = [next((k for k, group in enumerate(COARSE) if u in group), -1) for u in upos]
    # an anchor opens the segment after it, and closes the one before it
    opened = [sum(is_anchor[: i + 1]) for i in range(size)]
    closed = [sum(is_anchor[i:]) for i in range(size)]
    found = VIEWS[view](Surface(window, np.arange(size)))
    named: dict[int, tuple[object, ...]] = {}
    for query in range(size):
        for key in range(size):
            between = max(-2, min(2, opened[key] - opened[query]))
            first = place_in_segment(key, kinds, opened)
            last = place_in_segment(size - 1 - key, kinds[::-1], closed[::-1])
            expected = (upos[key], key == 0, between, first, last, key > query)
            assert named.setdefault(int(found[query, key]), expected) == expected
    assert len(set(named.values())) == len(named) > 20
