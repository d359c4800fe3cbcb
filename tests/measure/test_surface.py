"""Classes of cells, on a sentence whose words are counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.corpus.align import window_of_tokens
from headscope.corpus.document import Document, Word
from headscope.measure.surface import VIEWS, Surface

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
