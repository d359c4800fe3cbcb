"""Pairs of related words, and the sentences made around them."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.corpus.from_tokens import window_of_tokens
from headscope.corpus.word_pairs import RELATIONS, read_pairs, shipped_pairs
from headscope.errors import CorpusError
from headscope.relations import relations_of
from headscope.stimuli.word_pairs import TEMPLATES, pair_documents
from tests.relations.examples import RELATED_TEXT, RELATED_TOKENS

SEMANTIC = {r.name: r for r in relations_of(["semantic"])}


def test_each_sentence_holds_one_related_word_among_unrelated_ones_in_any_place():
    lexicon = shipped_pairs()
    places = []
    for document in pair_documents(lexicon, count=40, seed=1):
        assert document.sentences == 2 * len(RELATIONS)
        for number in range(document.sentences):
            words = [w for w in document.words if w.sentence == number and w.upos != "X"]
            *earlier, query = (w.form.lower() for w in words)
            assert len(earlier) == 3
            assert len({w.upos for w in words}) == 1
            related = [i for i, w in enumerate(earlier) if w in lexicon.any_relation(query)]
            assert len(related) == 1
            places += related
    # no distance gives it away
    assert all(0.25 < places.count(i) / len(places) < 0.42 for i in range(3))


def test_words_lie_where_the_text_has_them_and_names_take_no_article():
    for document in pair_documents(shipped_pairs(), count=40, seed=2):
        assert all(document.text[w.start : w.end] == w.form for w in document.words)
        assert all(
            a.end <= b.start for a, b in zip(document.words, document.words[1:], strict=False)
        )
        assert "the France" not in document.text


def test_no_pair_comes_twice_while_there_are_unused_ones():
    lexicon = shipped_pairs()
    seen = []
    for document in pair_documents(lexicon, count=64, seed=3):
        for number in range(document.sentences):
            *earlier, query = (
                w.form for w in document.words if w.sentence == number and w.upos != "X"
            )
            near = lexicon.any_relation(query.lower())
            (partner,) = (w for w in earlier if w.lower() in near)
            seen.append(frozenset((partner, query)))
    assert len(seen) == len(set(seen))


def test_the_same_seed_gives_the_same_sentences():
    one, same, other = (pair_documents(shipped_pairs(), count=2, seed=s)[1].text for s in (0, 0, 1))
    assert one == same != other


def test_a_file_with_other_columns_or_names_is_refused(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("first,second\na,b\n")
    with pytest.raises(CorpusError, match=r"pairs.csv: columns .*expected first,second,relation"):
        read_pairs(path)
    path.write_text("first,second,relation,upos\nhot,cold,antonym,ADJ\nup,down,opposite,ADV\n")
    with pytest.raises(CorpusError, match=r"pairs.csv:3: 'opposite' of 'ADV'; relations are syn"):
        read_pairs(path)


def test_controls_are_unrelated_words_of_the_keys_class_nearer_and_farther():
    window = window_of_tokens(RELATED_TOKENS, RELATED_TEXT)
    relation = SEMANTIC["category"]  # "cats" at 9 with "dogs" at 2
    drawn = relation.control(window, relation.pairs(window), np.random.default_rng(0))
    assert set(zip(drawn.query.tolist(), drawn.key.tolist(), strict=True)) == {(9, 5), (9, 6)}
    relation = SEMANTIC["part-whole"]  # "cars" at 12 with "wheels" at 5 and 6
    drawn = relation.control(window, relation.pairs(window), np.random.default_rng(0))
    assert set(zip(drawn.query.tolist(), drawn.key.tolist(), strict=True)) == {(12, 9), (12, 2)}


def test_plain_text_without_word_classes_has_no_pairs():
    document = RELATED_TEXT.__class__("plain", "hot cold", RELATED_TEXT.words[:0])
    window = window_of_tokens(["<bos>", "hot", "cold"], document)
    assert not len(SEMANTIC["antonym"].pairs(window))


def test_every_class_has_templates_with_four_places():
    for templates in TEMPLATES.values():
        assert len(templates) >= 3
        assert all(all(f"{{{i}}}" in t for i in range(4)) for t in templates)
        assert all(t.rindex("{") == t.index("{3}") for t in templates)  # the query comes last
