"""Kinds of attention say what slow loops say; a kind of one's own is asked nothing unseen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, KINDS, AttentionKind
from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Window
from headscope.errors import ArgumentError
from headscope.models.tokenizer import load_tokenizer
from headscope.relations import relations_of
from headscope.relations.relation import find

LENGTH = 12
BLOCK = 8


@dataclass(frozen=True)
class Blocks(AttentionKind):
    """Queries see all of their block, and the blocks before it."""

    def row_end(self, query, length):
        return np.minimum((np.asarray(query) // BLOCK + 1) * BLOCK, length)


BLOCKS = Blocks("blocks", sees_future=True)


@pytest.mark.parametrize("kind", [CAUSAL, BIDIRECTIONAL, BLOCKS], ids=lambda kind: kind.name)
def test_masks_counts_and_spans_agree_with_the_rows(kind):
    position = np.arange(LENGTH)
    row_end = kind.row_end(position, LENGTH)
    mask = kind.sees(position[:, None], position[None, :])
    pool = np.array([2, 4, 5, 11])
    for query in range(LENGTH):
        expected = [key for key in range(LENGTH) if key < row_end[query]]
        assert np.flatnonzero(mask[query]).tolist() == expected
        assert kind.count_seen(pool, position)[query] == len(set(pool) & set(expected))
        for first in range(LENGTH):
            for last in range(first, LENGTH):
                span = set(range(first, last + 1))
                apart = span <= set(expected) and query not in span
                one = np.array([query])
                found = kind.sees_apart((one, one), (np.array([first]), np.array([last])))
                assert bool(found[0]) == apart


@pytest.mark.parametrize(("kind", "seen"), [(CAUSAL, [3, 6]), (BIDIRECTIONAL, [12, 12])])
def test_an_even_head_spreads_over_the_tokens_that_are_there_to_see(kind, seen):
    window = Window("w", np.arange(LENGTH), ("x",) * LENGTH, attention_kind=kind)
    assert window.keys_seen(np.array([2, 5])).tolist() == seen


def test_only_causal_attention_predicts_the_next_token():
    assert [kind.name for kind in KINDS.values() if kind.predicts_next] == ["causal"]


def test_a_kind_of_ones_own_is_asked_what_causal_heads_are_and_sees_all_pairs():
    windows = hs.windows("gold", load_tokenizer("mini", mini_folder()), max_tokens=1_500)
    relations = relations_of(["all"], BLOCKS)
    assert relations == relations_of(["all"])
    ahead = 0
    for number, window in enumerate(replace(each, attention_kind=BLOCKS) for each in windows):
        row_end = BLOCKS.row_end(np.arange(len(window)), len(window))
        for relation in relations:
            pairs = find(relation, window, [number])
            for side in () if pairs is None else (pairs.targets, pairs.controls):
                assert (side.key < row_end[side.query]).all(), relation.id
                ahead += int((side.key > side.query).sum())
    assert ahead > 100


def test_what_is_no_kind_is_refused_with_the_choices():
    with pytest.raises(ArgumentError, match="expected one of bidirectional, causal"):
        hs.pairs([2], [1], attention_kind="sideways")
