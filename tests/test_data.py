"""What ships: corpora that are valid Universal Dependencies with balanced entities."""

from __future__ import annotations

import hashlib
import re
from collections import Counter

import pytest

from headscope.corpus.deprels import own_label
from headscope.corpus.read import read_corpus
from headscope.data import data_folder, shipped_corpora

UPOS = set("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split())
# https://universaldependencies.org/u/dep/
DEPRELS = set(
    "acl advcl advmod amod appos aux case cc ccomp clf compound conj cop csubj dep det discourse "
    "dislocated expl fixed flat goeswith iobj list mark nmod nsubj nummod obj obl orphan "
    "parataxis punct reparandum root vocative xcomp".split()
)
corpora = pytest.mark.parametrize("path", shipped_corpora(), ids=lambda path: path.stem)


@corpora
def test_every_sentence_is_one_tree_with_known_labels(path):
    for document in read_corpus(path):  # which refuses cycles and unbalanced brackets
        roots = Counter(word.sentence for word in document.words if word.head < 0)
        assert all(count == 1 for count in roots.values()), document.name
        assert len(roots) == document.sentences
        for word in document.words:
            assert word.upos in UPOS, (document.name, word)
            assert word.deprel.split(":")[0] in DEPRELS, (document.name, word)
            assert (word.deprel == "root") == (word.head < 0), (document.name, word)
            if word.head >= 0:
                assert document.words[word.head].upos != "PUNCT", (document.name, word)


@corpora
def test_the_words_spell_the_text(path):
    documents = read_corpus(path)
    sentences = re.findall(r"^# text = (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(sentences) == sum(document.sentences for document in documents)
    remaining = iter(sentences)
    for document in documents:
        assert all(document.text[w.start : w.end] == w.form for w in document.words)
        place = 0
        for _ in range(document.sentences):
            sentence = next(remaining)
            place = document.text.index(sentence, place) + len(sentence)


def test_the_corpora_hold_queries_for_many_relations_and_for_pronouns():
    links, pronouns = Counter(), 0
    for path in shipped_corpora():
        for document in read_corpus(path):
            named = set()
            for i, word in enumerate(document.words):
                if word.head >= 0:
                    direction = "head>dep" if word.head > i else "dep>head"
                    links[f"{own_label(word.deprel)}:{direction}"] += 1
            for mention in document.mentions:
                if document.words[mention.head].upos != "PRON":
                    named.add(mention.entity)
                else:
                    pronouns += mention.entity in named
    assert sum(count >= 50 for count in links.values()) >= 16
    assert pronouns >= 350


def test_the_readme_states_the_checksum_of_every_file():
    readme = (data_folder() / "README.md").read_text(encoding="utf-8")
    for path in shipped_corpora():
        assert path.name in readme
        assert hashlib.sha256(path.read_bytes()).hexdigest() in readme
