"""Functions of a user that find pairs or controls: what they return is checked."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.relations.controls import other_keys
from headscope.relations.relation import Relation, TagThresholds

WINDOW = Window("text#3", np.arange(12), ("a",) * 12)
RULE = TagThresholds(0.1, "a guess", "a thing")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (hs.pairs([5], [-1]), "hold position -1; window 'text#3' has the positions 0 to 11"),
        (hs.pairs([12], [1]), "hold position 12"),
        (hs.pairs([5], [1], [12]), "hold position 12"),
        ([(5, 1)], r"are a value of type list, expected hs\.pairs"),
        (None, r"are None, expected hs\.pairs"),
    ],
)
def test_cells_outside_their_window_are_an_error_with_the_relations_name(cells, message):
    pairs = Relation("words", "mine", lambda window: cells, other_keys, RULE).pairs
    with pytest.raises(hs.HeadscopeError, match=f"words/mine: its pairs {message}"):
        pairs(WINDOW)
    sound = hs.pairs([5], [1])
    control = Relation("words", "mine", lambda window: sound, lambda *asked: cells, RULE).control
    with pytest.raises(hs.HeadscopeError, match=f"words/mine: its control {message}"):
        control(WINDOW, sound, np.random.default_rng(0))


def test_sound_cells_pass():
    cells = hs.pairs([5, 11], [0, 11])
    assert Relation("words", "mine", lambda window: cells, other_keys, RULE).pairs(WINDOW) is cells
