"""Relations, controls and baselines find keys on both sides in an encoder's window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.corpus.align import window_of_tokens
from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Frame, Window, WordTable
from headscope.errors import PatternError
from headscope.models.tokenizer import load_tokenizer
from headscope.relations import relations_of
from headscope.relations.baselines import ALL_BASELINES, picks
from headscope.relations.relation import targets_of
from headscope.relations.types.semantic import nearest_of_class
from headscope.relations.window_pairs import WindowPairs
from headscope.relations.word_rows import CLASSES
from tests.helpers.prose import annotated_prose
from tests.relations.examples import DISCOURSE_TEXT, DISCOURSE_TOKENS

CLASS = "DET ADJ NOUN VERB DET NOUN PUNCT NOUN VERB ADP DET ADJ NOUN PUNCT".split()
HEADS = [2, 2, 3, -1, 5, 3, 3, 8, -1, 12, 12, 12, 8, 8]
DEPRELS = "det amod nsubj root det obj punct nsubj root case det amod obl punct".split()
PIECES = [1, 1, 2, 1, 1, 3, 1, 1, 1, 1, 1, 2, 1, 1]


@pytest.fixture
def window() -> Window:
    """Two sentences, some words of several pieces, between [CLS] and [SEP]."""
    last = np.cumsum(PIECES)
    count = int(last[-1])
    words = WordTable(
        first=last - np.array(PIECES) + 1,
        last=last,
        sentence=np.array([0] * 7 + [1] * 7),
        head=np.array(HEADS),
        deprel=np.array(DEPRELS),
        upos=np.array(CLASS),
        lemma=np.array([f"l{i % 9}" for i in range(len(CLASS))]),
        tense=np.full(len(CLASS), ""),
    )
    strings = ["[CLS]", *["a"] * count]
    for place in last[np.array(CLASS) == "PUNCT"]:
        strings[place] = "."
    plain = Window("w", np.arange(count + 1), tuple(strings), words=words)
    return Frame(99, "[SEP]", BIDIRECTIONAL).close(plain)


def test_baselines_look_ahead_as_a_slow_loop_says(window):
    words, found = window.words, picks(window)
    assert found.shape == (len(ALL_BASELINES), len(window))
    own = dict(zip(ALL_BASELINES, found, strict=False))
    for query in range(len(window)):
        expected = query + 3 if query + 3 < window.stop else -1
        assert own["offset+3"][query] == expected
    for i, place in enumerate(words.last):
        for name, members in CLASSES.items():
            after = [k for k in range(i + 1, len(words)) if words.upos[k] in members]
            before = [k for k in range(i) if words.upos[k] in members]
            inside = [k for k in after if words.sentence[k] == words.sentence[i]]
            assert own[f"later-nearest-{name}"][place] == (words.last[after[0]] if after else -1)
            assert own[f"later-second-{name}"][place] == (
                words.last[after[1]] if len(after) > 1 else -1
            )
            assert own[f"later-nearest-{name}-in-sentence"][place] == (
                words.last[inside[0]] if inside else -1
            )
            sides = [words.last[side] for side in (*before[-1:], *after[:1])]
            nearest = min(sides, key=lambda k: abs(k - place), default=-1)
            assert own[f"nearest-{name}-on-either-side"][place] == nearest


def test_dependencies_count_on_both_sides_and_in_both_directions(window):
    relations = {r.name: r for r in relations_of(["syntactic"], BIDIRECTIONAL)}
    last, first = window.words.last, window.words.first
    cells = {}
    for name in ("obj:dep>head", "obj:head>dep", "det:dep>head", "det:head>dep"):
        found = targets_of(relations[name], window)
        cells[name] = set(zip(found.query.tolist(), found.key.tolist(), strict=True))
    assert cells["obj:dep>head"] == {(last[5], last[3])}
    assert cells["obj:head>dep"] == {(last[3], k) for k in range(first[5], last[5] + 1)}
    assert {key > query for query, key in cells["det:dep>head"]} == {True}
    assert {key > query for query, key in cells["det:head>dep"]} == {False}
    causal = targets_of(relations["obj:head>dep"], replace(window, attention_kind=CAUSAL))
    assert len(causal) == 0


def test_satellites_find_earlier_and_later_nuclei():
    text = window_of_tokens(DISCOURSE_TOKENS, DISCOURSE_TEXT)
    both = Frame(99, "[SEP]", BIDIRECTIONAL).close(text)
    relation = relations_of(["discourse"], BIDIRECTIONAL)[1]
    found = WindowPairs(both).cells(relation, [0])
    targets, controls = (
        set(zip(cells.owner.tolist(), cells.key.tolist(), strict=True))
        for cells in (found.targets, found.controls)
    )
    assert targets == {(2, 6), (7, 6)}
    assert controls == {(2, 9), (2, 10), (7, 2), (7, 13)}
    assert relation.baseline.find(both)[[2, 7]].tolist() == [6, 6]


@pytest.mark.parametrize("relation", relations_of(["all"], BIDIRECTIONAL), ids=lambda r: r.id)
def test_no_key_but_a_sink_is_a_special_token(relation, window):
    for seed in range(4):
        found = WindowPairs(window).cells(relation, [seed])
        if found is None:
            continue
        last = len(window) - 1
        assert set(found.controls.key.tolist()).isdisjoint({0, last})
        if relation.type != "sink":
            assert set(found.targets.key.tolist()).isdisjoint({0, last})
        targets, controls = (
            set(zip(side.query.tolist(), side.key.tolist(), strict=True))
            for side in (found.targets, found.controls)
        )
        assert targets.isdisjoint(controls)


def test_controls_come_from_both_sides(window):
    named = {r.id: r for r in relations_of(["all"], BIDIRECTIONAL)}
    for name in ("positional/offset+1", "positional/offset-1", "delimiter/punctuation"):
        sides = set()
        for seed in range(20):
            found = WindowPairs(window).cells(named[name], [seed])
            assert found is not None
            sides |= set(np.sign(found.controls.key - found.controls.query).tolist())
        assert sides >= {-1, 1}


def test_patterns_of_both_kinds_of_windows_are_not_mixed():
    tokenizer = load_tokenizer("mini", mini_folder())
    causal, both = (
        hs.windows(None, tokenizer, max_tokens=300, attention_kind=kind)[0]
        for kind in ("causal", "bidirectional")
    )
    even = [np.eye(len(w), dtype=np.float32)[None, None] for w in (causal, both)]
    with pytest.raises(PatternError, match="score"):
        hs.score_patterns(even, [causal, both])
    later = np.eye(len(causal))[None, None, ::-1]
    with pytest.raises(PatternError, match="attention_kind='bidirectional'"):
        hs.score_patterns(later, [causal])


LENGTH = 12


@pytest.mark.parametrize("kind", [CAUSAL, BIDIRECTIONAL], ids=lambda kind: kind.name)
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


def test_the_nearest_word_of_a_class_of_meaning_is_that_of_a_slow_loop():
    """On either side; of two equally near ones the earlier."""
    same_class = {"PROPN": "NOUN"}
    for window in annotated_prose("bidirectional", 2_000)[:4]:
        words = window.words
        upos = [same_class.get(each, each) for each in words.upos.tolist()]
        last = words.last.tolist()
        expected = np.full(len(window), -1)
        for i, own in enumerate(upos):
            others = [last[j] for j in range(len(upos)) if j != i and upos[j] == own]
            if own in ("NOUN", "VERB", "ADJ") and others:
                expected[last[i]] = min(others, key=lambda key, i=i: (abs(key - last[i]), key))
        assert np.array_equal(nearest_of_class(window), expected)
