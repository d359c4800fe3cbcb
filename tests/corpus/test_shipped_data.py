"""What ships: corpora that are valid Universal Dependencies with balanced entities."""

from __future__ import annotations

import hashlib
import lzma
import re
from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest

from data.corpora.make import controlled_corpus
from headscope.attention_kind import KINDS
from headscope.corpus.document import own_label
from headscope.corpus.read import read_corpus
from headscope.corpus.shipped import built_corpora, data_folder, mini_folder
from headscope.corpus.word_pairs import RELATIONS, shipped_pairs
from headscope.relations import head_types
from headscope.runs.atlas import SUFFIX, atlas_names
from headscope.runs.resolve import load
from headscope.statistics.thresholds import THRESHOLDS

UPOS = set("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X".split())
# https://universaldependencies.org/u/dep/
DEPRELS = set(
    "acl advcl advmod amod appos aux case cc ccomp clf compound conj cop csubj dep det discourse "
    "dislocated expl fixed flat goeswith iobj list mark nmod nsubj nummod obj obl orphan "
    "parataxis punct reparandum root vocative xcomp".split()
)
corpora = pytest.mark.parametrize("path", built_corpora(), ids=lambda path: path.stem)


@corpora
def test_every_sentence_is_one_tree_with_known_labels(path):
    for document in read_corpus(path):  # which refuses unbalanced brackets
        roots = Counter(word.sentence for word in document.words if word.head < 0)
        assert all(count == 1 for count in roots.values()), document.name
        assert len(roots) == document.sentences
        for word in document.words:
            assert word.upos in UPOS, (document.name, word)
            assert word.deprel.split(":")[0] in DEPRELS, (document.name, word)
            assert (word.deprel == "root") == (word.head < 0), (document.name, word)
            if word.head >= 0:
                assert document.words[word.head].upos != "PUNCT", (document.name, word)


GUM = ("vlog/GUM_vlog_pizzeria", "court/GUM_court_loan", "bio/GUM_bio_byron")


@pytest.mark.parametrize(
    "path",
    [*built_corpora(), *(data_folder() / "gum" / f"{name}.conllu.xz" for name in GUM)],
    ids=lambda path: path.stem,
)
def test_the_words_spell_the_text(path):
    documents, raw = read_corpus(path), path.read_bytes()
    text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8")
    sentences = re.findall(r"^# text = (.*?) *$", text, flags=re.MULTILINE)
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
    for path in built_corpora():
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
    files = [*built_corpora(), *data_folder().glob("*.csv"), *data_folder().glob("*/documents.csv")]
    files += [*data_folder().glob("*/*.npz"), data_folder() / "long_words.txt"]
    files += [path for path in mini_folder().iterdir() if path.suffix in (".safetensors", ".json")]
    assert len(files) > 6
    for path in files:
        assert path.name in readme
        assert hashlib.sha256(path.read_bytes()).hexdigest() in readme, path


def test_the_controlled_corpus_is_what_its_generator_writes_and_depends_on_its_seed():
    shipped = (data_folder() / "corpora" / "controlled.conllu").read_text(encoding="utf-8")
    assert controlled_corpus() == shipped
    assert controlled_corpus(2, seed=12) != controlled_corpus(2)


def test_pairs_of_words_are_of_known_relations_and_share_no_spelling():
    """A pair with common letters would reward heads that match letters."""
    assert {pair.relation for pair in shipped_pairs().pairs} == {*RELATIONS}
    assert {pair.upos for pair in shipped_pairs().pairs} == {"NOUN", "VERB", "ADJ"}
    for pair in shipped_pairs().pairs:
        first, second = pair.first.lower(), pair.second.lower()
        shared = [first[i : i + 3] for i in range(len(first) - 2) if first[i : i + 3] in second]
        assert not shared, pair


ORDERED = (
    *("nsubj:head>dep", "nsubj:pass:head>dep", "obj:dep>head", "det:head>dep", "amod:head>dep"),
    *("nmod:poss:head>dep", "aux:head>dep", "case:head>dep", "conj:dep>head"),
    "acl:relcl:dep>head",
)


def test_no_fixed_distance_finds_more_than_six_in_ten_targets_of_the_controlled_corpus():
    distances = {name: Counter() for name in ORDERED}
    for document in read_corpus(data_folder() / "corpora" / "controlled.conllu"):
        for i, word in enumerate(document.words):
            direction = "head>dep" if word.head > i else "dep>head"
            name = f"{own_label(word.deprel)}:{direction}"
            if word.head >= 0 and name in distances:
                distances[name][abs(i - word.head)] += 1
    for name, counts in distances.items():
        assert max(counts.values()) <= 0.6 * counts.total(), name


def test_every_atlas_that_ships_is_judged_by_the_installed_rules():
    installed = [
        (relation.id, replace(relation.rule, source="", meaning=""))
        for head_type in head_types().values()
        for kind in KINDS.values()
        for relation in head_type.relations_of(kind)
    ]
    table = pd.read_csv(data_folder() / "atlas" / "atlases.csv")
    assert len(atlas_names()) == len(table)
    for row in table.itertuples():
        file = data_folder() / "atlas" / row.file
        assert file.name.endswith(SUFFIX)
        assert hashlib.sha256(file.read_bytes()).hexdigest() == row.sha256
        run = load(file)
        assert run.info["thresholds"] == THRESHOLDS
        for name, rule in run.rules.items():
            bare = replace(rule, source="", meaning="")
            assert name.partition("/")[0] not in head_types() or (name, bare) in installed
