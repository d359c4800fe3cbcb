"""Relations of one's own: pairs that no window has are refused by the relation's name."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.relations.controls import other_keys
from headscope.relations.relation import Relation, TagThresholds

SIZE = 12
WINDOW = Window("text#3", np.arange(SIZE), ("a",) * SIZE)
AN_ENCODERS = Window("text#4", np.arange(SIZE), ("a",) * SIZE, attention_kind=BIDIRECTIONAL)
QUERIES = np.arange(2, SIZE - 1)


def raw(query, key, owner=None):
    """Pairs as they are built without `hs.pairs`, and without the checks of shapes of a test."""
    ones = np.ones(len(query))
    columns = {"query": query, "key": key, "owner": query if owner is None else owner}
    found = object.__new__(hs.Pairs)
    for name, value in (columns | {"weight": ones, "share": ones, "left_out": None}).items():
        object.__setattr__(found, name, value)
    return found


def relation_of(found, control=other_keys) -> Relation:
    rule = TagThresholds(0.1, "a guess", "a thing")
    return Relation("words", "mine", lambda window: found, control, rule)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            raw(QUERIES, QUERIES * 0 + 10**9),
            r"words/mine: its pairs \(query, key\) \(2, 1000000000\), \(3, 1000000000\), "
            r"\(4, 1000000000\), … are outside their window; window 'text#3' has the positions 0 to 11",
        ),
        (raw(QUERIES, QUERIES * 0 - 5), r"\(2, -5\), \(3, -5\), \(4, -5\), … are outside their"),
        (raw(np.array([SIZE]), np.array([1])), r"\(12, 1\) are outside their window"),
        (raw(np.array([-1]), np.array([1])), r"\(-1, 1\) are outside their window"),
        (raw(np.array([5]), np.array([1]), np.array([SIZE])), r"\(5, 1\) are outside their window"),
        (hs.pairs([5], [-1]), r"\(5, -1\) are outside their window"),
        # hs.pairs leaves out what comes later, and such a key never comes
        (hs.pairs([5, 6], [1, 10**9]), r"\(6, 1000000000\) is outside its window"),
        (
            raw(QUERIES, QUERIES + 1),
            r"\(2, 3\), \(3, 4\), \(4, 5\), … have the key after the query",
        ),
        (
            hs.pairs([5], [6], attention_kind="bidirectional"),
            r"\(5, 6\) have the key after the query; a causal model's",
        ),
        (raw(QUERIES, QUERIES / 2), "keys are float64, expected a row of whole numbers"),
        (raw([5], [1]), "queries are list, expected a row of whole numbers"),
        (raw(QUERIES, QUERIES[1:]), "have 9 queries, 8 keys, 9 owners.*; a pair has one of each"),
        ([(5, 1)], r"its pairs are a value of type list, expected hs\.pairs"),
        (None, r"its pairs are None, expected hs\.pairs"),
    ],
)
def test_cells_that_a_window_has_not_are_named_with_the_relation(found, message):
    with pytest.raises(hs.HeadscopeError, match=message):
        relation_of(found).pairs(WINDOW)


def test_controls_are_looked_at_as_pairs_are():
    asked = relation_of(hs.pairs([5], [1]), lambda window, targets, rng: raw(QUERIES, QUERIES - 9))
    targets = asked.pairs(WINDOW)
    with pytest.raises(
        hs.HeadscopeError, match=r"words/mine: its control \(query, key\) \(2, -7\)"
    ):
        asked.control(WINDOW, targets, np.random.default_rng(0))


def test_an_encoders_queries_may_look_ahead():
    ahead = relation_of(hs.pairs([5], [6], attention_kind="bidirectional"))
    assert ahead.pairs(AN_ENCODERS).key.tolist() == [6]
    assert len(relation_of(hs.pairs([], [])).pairs(WINDOW)) == 0


def test_a_relation_that_is_declared_or_changed_is_looked_at_too():
    @hs.relation("words", "declared")
    def declared(window):
        """a thing"""
        return raw(QUERIES, QUERIES + SIZE)

    with pytest.raises(hs.HeadscopeError, match="words/declared: its pairs"):
        declared.pairs(WINDOW)


@hs.relation("words", "next")
def next_word(window):
    """the word that follows"""
    return hs.pairs(window.words.last[:-1], window.words.last[1:])


@hs.relation("words", "before")
def word_before(window):
    """the word before"""
    return hs.pairs(window.words.last[1:], window.words.last[:-1])


SHORT = {"max_tokens": 300, "twin": False, "examples": False}


def test_keys_that_all_come_after_their_queries_are_what_an_error_names():
    with pytest.raises(CorpusError) as refused:
        hs.classify("mini", "gold", relations=[next_word], **SHORT)
    said = str(refused.value)
    assert said.startswith("words/next: every key comes after its query, as the pair (")
    assert "swap the two" in said
    assert "annotation" not in said


def test_beside_relations_that_find_pairs_it_is_a_note():
    run = hs.classify("mini", "gold", relations=[next_word, word_before], **SHORT)
    assert set(run.evidence["relation"]) == {"before"}
    (note,) = (note for note in run.info["notes"] if "words/" in note)
    assert note.startswith("words/next: every key comes after its query")
