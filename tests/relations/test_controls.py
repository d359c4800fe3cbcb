"""Control pairs: each rule of a control, checked on many draws."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.corpus.align import Cuts, TokenizedDocument, cut_windows, window_of_tokens
from headscope.corpus.document import Document, Word
from headscope.corpus.window import Window
from headscope.relations import relations_of
from headscope.relations.controls import other_keys, same_distance
from headscope.relations.pairs import balance, pairs, span_pairs
from headscope.relations.types.concept_induction import same_step
from headscope.relations.types.delimiter import kinds, no_delimiters
from headscope.relations.types.syntactic import same_distance_same_class, words_linked_by
from tests.relations.examples import (
    KEYS,
    KEYS_TEXT,
    LETTERS,
    LONG_WORD,
    LONG_WORD_TEXT,
    REED_TEXT,
    REED_TOKENS,
    RELATED_TEXT,
    RELATED_TOKENS,
    TOM_TEXT,
    TOM_TOKENS,
    WORDS,
    WORDS_TEXT,
)

RELATIONS = {relation.id: relation for relation in relations_of(["all"])}


def many(draw, window, targets, times: int = 200) -> set[tuple[int, int, int]]:
    """All (owner, query, key) that come up in many draws."""
    found = set()
    for seed in range(times):
        drawn = draw(window, targets, np.random.default_rng(seed))
        found |= set(zip(*(x.tolist() for x in (drawn.owner, drawn.query, drawn.key)), strict=True))
    return found


def of(query: list[int], key: list[int]):
    return pairs(np.array(query), np.array(key))


def test_other_keys_are_all_others_of_the_same_query_but_the_first_token():
    window = window_of_tokens(LETTERS)
    found = many(other_keys, window, of([4, 4], [2, 3]))
    assert found == {(4, 4, 1), (4, 4, 4)}


def test_a_cell_at_the_same_distance_covers_as_much_of_a_word_as_its_target():
    """Query 5 has a word of two tokens, query 7 one of three."""
    window = window_of_tokens(LETTERS[:8])
    targets = span_pairs(*np.array([[5, 3, 4], [7, 1, 3]]).T)
    shares = set()
    for seed in range(20):
        drawn = same_distance(window, targets, np.random.default_rng(seed))
        shares |= set(zip(drawn.owner.tolist(), drawn.share.tolist(), strict=True))
    assert shares == {(5, 1 / 2), (7, 1 / 3)}


def test_other_keys_weigh_as_much_as_the_tokens_of_the_targets_words():
    """Query 5 has a word of two tokens; query 7 one of three and one of a single token."""
    window = window_of_tokens(LETTERS[:8])
    query, first, last = np.array([[5, 1, 2], [7, 1, 3], [7, 5, 5]]).T
    targets = span_pairs(query, first, last)
    shares = set()
    for seed in range(20):
        drawn = other_keys(window, targets, np.random.default_rng(seed))
        shares |= set(zip(drawn.owner.tolist(), drawn.share.tolist(), strict=True))
    assert shares == {(5, 1 / 2), (7, 2 / 4)}


def test_same_distance_draws_every_other_query_that_the_distance_allows():
    window = window_of_tokens(LETTERS[:7])
    # two back: queries from 3 (whose key is 1) to the last, 6; 4 is the target itself
    assert many(same_distance, window, of([4], [2])) == {(4, 3, 1), (4, 5, 3), (4, 6, 4)}


@pytest.mark.parametrize(
    ("query", "target", "keys"),
    [(30, 10, [8, 9, 11, 12]), (20, 2, [1, 3, 4]), (10, 1, [2, 3])],
)
def test_a_far_key_is_compared_with_the_two_before_and_the_two_after_it(query, target, keys):
    """The first token is no control; all of them together are."""
    window = window_of_tokens(["<s>", *map(str, range(40))])
    control = RELATIONS["far/offset-20"].control
    drawn = control(window, of([query], [target]), np.random.default_rng(0))
    assert drawn.query.tolist() == drawn.owner.tolist() == [query] * len(keys)
    assert sorted(drawn.key.tolist()) == keys
    assert drawn.share.sum() == pytest.approx(1)


def test_delimiters_are_compared_with_no_delimiter_of_any_kind():
    window = window_of_tokens(KEYS, KEYS_TEXT)
    relation = RELATIONS["delimiter/sentence-end"]
    found = many(no_delimiters, window, relation.pairs(window))
    assert found
    assert all(owner == query and 0 < key < query for owner, query, key in found)
    assert not any(kinds(KEYS[key]) for _, _, key in found)
    assert {key for _, query, key in found if query == 16} == {*range(1, 13), 15}


def test_what_followed_a_word_is_asked_for_if_it_has_several_tokens():
    """“ka” stood before “tora”; “mi” before “ka”, which is one token."""
    forms, starts = ["ka", "tora", "mi", "ka", "mi"], [0, 3, 8, 11, 14]
    words = tuple(
        Word(form, start, start + len(form), 0, lemma=form)
        for form, start in zip(forms, starts, strict=True)
    )
    tokens = ["<s>", "ka", " to", "ra", " mi", " ka", " mi"]
    window = window_of_tokens(tokens, Document("d", " ".join(forms), words))
    found = RELATIONS["concept-induction/next-word"].pairs(window)
    assert list(zip(found.query.tolist(), found.key.tolist(), strict=True)) == [(5, 3)]
    # most words of several tokens have two
    assert same_step(window).tolist() == [-1, -1, -1, -1, -1, 3, -1]


def test_a_first_piece_is_compared_with_every_piece_between_it_and_the_query():
    relation = RELATIONS["lexical/first-piece"]
    window = window_of_tokens(LONG_WORD, LONG_WORD_TEXT)
    found = many(relation.control, window, relation.pairs(window))
    assert found == {(3, 3, 2), (4, 4, 2), (4, 4, 3)}


def word(i: int, upos: str, head: int, deprel: str = "dep") -> Word:
    return Word(f"w{i}", 3 * i, 3 * i + 2, 0, upos=upos, head=head, deprel=deprel)


def sentence(*rows: tuple[str, int, str]) -> Window:
    """One token per word; rows are part of speech, head (counted from 0) and relation."""
    words = tuple(word(i, upos, head, deprel) for i, (upos, head, deprel) in enumerate(rows))
    document = Document("d", " ".join(w.form for w in words), words)
    return window_of_tokens(["<bos>", *(w.form for w in words)], document)


def test_syntactic_controls_keep_the_distance_and_the_keys_word_class():
    # DET ADJ NOUN twice; the noun's determiner is two back, and so is another determiner from
    # the verb between them; adjectives and verbs are two back from elsewhere
    window = sentence(
        ("DET", 2, "det"),
        ("ADJ", 2, "amod"),
        ("NOUN", 3, "nsubj"),
        ("VERB", -1, "root"),
        ("DET", 7, "det"),
        ("DET", 7, "det"),
        ("ADJ", 7, "amod"),
        ("NOUN", 3, "obj"),
    )
    targets = words_linked_by(window, "det", query_is_head=True)
    assert set(zip(targets.query.tolist(), targets.key.tolist(), strict=True)) == {
        (3, 1),
        (8, 5),
        (8, 6),
    }
    found = many(same_distance_same_class, window, targets)
    # two back with a determiner as key, and no dependency between: ADJ(7) → DET(5) alone;
    # three back there is no such determiner, and any unlinked pair serves
    assert {f for f in found if f[0] == 3} == {(3, 7, 5)}
    assert {f for f in found if f[0] == 8 and f[1] - f[2] == 2} == {(8, 7, 5)}
    assert {f[1] - f[2] for f in found if f[0] == 8} == {2, 3}


def test_words_that_share_a_token_are_no_pair():
    """ "Im": the pronoun and the verb are read at once, and neither comes first."""
    words = (
        Word("I", 0, 1, 0, upos="PRON", head=1, deprel="nsubj"),
        Word("m", 1, 2, 0, upos="AUX", head=-1, deprel="root"),
        Word("so", 3, 5, 0, upos="ADV", head=1, deprel="advmod"),
    )
    tokenized = TokenizedDocument(
        Document("d", "Im so", words), np.array([1, 2]), ["Im", " so"], np.array([[0, 2], [2, 5]])
    )
    (window,) = cut_windows(tokenized, 0, "<bos>", max_length=9, cuts=Cuts())
    assert len(words_linked_by(window, "nsubj", query_is_head=True)) == 0
    assert len(words_linked_by(window, "advmod", query_is_head=False)) == 1


@pytest.mark.parametrize(
    ("relation", "tokens", "document", "expected"),
    [
        # she → Anna: Maria stands nearer. They → keys: the others are one woman each
        ("coreference/pronoun", KEYS, KEYS_TEXT, {(5, 5, 3)}),
        # he → Tom: Bob. him → Bob: Tom. his → Tom: Bob; → he: him. himself → Bob: Tom; → him: he
        # and his; a pronoun's distractor is a pronoun, a name's a name
        (
            "coreference/chain",
            TOM_TOKENS,
            TOM_TEXT,
            {(4, 4, 2), (5, 5, 1), (6, 6, 2), (6, 6, 5), (7, 7, 1), (7, 7, 4), (7, 7, 6)},
        ),
        # surgeon → Reed: the dog stands nearer
        ("coreference/nominal", REED_TOKENS, REED_TEXT, {(8, 8, 5)}),
        # Maria → Maria: the keys stand nearer, Anna farther
        ("coreference/same-word", KEYS, KEYS_TEXT, {(21, 21, 11), (21, 21, 12), (21, 21, 1)}),
        # "cats" at 9 with "dogs" at 2, and "cars" at 12 with "wheels" at 5 and 6: unrelated words
        # of the key's class, nearer and farther
        ("semantic/category", RELATED_TOKENS, RELATED_TEXT, {(9, 9, 5), (9, 9, 6)}),
        ("semantic/part-whole", RELATED_TOKENS, RELATED_TEXT, {(12, 12, 9), (12, 12, 2)}),
        # "abcd" ends at 2 and 9: its query 9 has the end of the earlier copy, and of "ijklm" at 7
        (
            "concept-induction/next-word",
            WORDS,
            WORDS_TEXT,
            {(9, 9, 2), (9, 9, 7), (11, 11, 4), (11, 11, 9), (14, 14, 7), (14, 14, 11)},
        ),
    ],
)
def test_controls_are_the_next_other_mentions_or_unrelated_words_on_both_sides(
    relation, tokens, document, expected
):
    row = RELATIONS[relation]
    window = window_of_tokens(tokens, document)
    assert many(row.control, window, row.pairs(window), times=2) == expected


def test_the_matched_control_of_word_induction_is_the_other_tokens_of_the_longest_words_length():
    relation = RELATIONS["concept-induction/next-word"]
    window = window_of_tokens(WORDS, WORDS_TEXT)
    drawn = relation.matched_control(window, relation.pairs(window), np.random.default_rng(0))
    # the words that follow start at 3, 5 and 8, and the longest word has 3 tokens
    assert set(zip(drawn.query.tolist(), drawn.key.tolist(), strict=True)) == {
        (9, 3),
        (9, 5),
        (11, 5),
        (11, 6),
        (14, 8),
        (14, 10),
    }
    assert drawn.share.tolist() == [0.5] * 6


def test_balance_gives_each_query_the_weight_of_its_targets_and_drops_the_rest():
    targets = span_pairs(np.array([5, 6, 7]), np.array([1, 1, 2]), np.array([3, 1, 2]))
    controls = pairs(np.array([9, 9, 9]), np.array([1, 2, 3]), owner=np.array([5, 6, 6]))
    kept, weighted = balance(targets, controls)
    assert kept.queries.tolist() == [5, 6]
    assert weighted.weight.tolist() == [1, 0.5, 0.5]  # a word of three tokens is one word
