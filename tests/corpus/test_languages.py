"""Treebanks of many scripts and word orders: their names, their text, and words on tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.languages import by_language, foreign_languages, language_of
from headscope.errors import CorpusError
from tests.helpers.treebanks import LANGUAGES, save_treebanks


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_treebanks(tmp_path_factory.mktemp("pud"), documents=3)


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("de_pud-ud-test.conllu", "de"),
        ("UD_Cantonese-HK/yue_hk-ud-test.conllu.gz", "yue"),
        ("ja_mine.conllu.xz", "ja"),
        ("dev.conllu", ""),
        ("de.conllu", ""),
        ("DE_pud-ud-test.conllu", ""),
        ("de_pud-ud-test.txt", ""),
        ("my novel.conllu", ""),
    ],
)
def test_a_treebanks_name_says_its_language(name, language):
    assert language_of(name) == language


def test_only_names_of_universal_dependencies_say_that_a_text_is_not_english():
    files = ["en_ewt-ud-dev.conllu", "my_text.conllu", "zh_gsdsimp-ud-test.conllu.xz", "de.txt"]
    assert foreign_languages(map(Path, files)) == ["zh"]


def test_the_files_of_a_language_are_one_corpus(folder, tmp_path):
    more = save_treebanks(tmp_path / "UD_English-More", ["en"], documents=1)
    found = by_language([folder, more])
    assert list(found) == list(LANGUAGES)
    assert [len(files) for files in found.values()] == [1, 2, 1, 1, 1]
    assert list(by_language([folder], ["zh", "AR"])) == ["ar", "zh"]


def test_a_language_that_is_not_there_and_a_file_of_none_are_named(folder, tmp_path):
    with pytest.raises(CorpusError, match="the language 'de' here; there are: ar, en, fr, ja, zh"):
        by_language([folder], ["de"])
    path = tmp_path / "novel.conllu"
    path.write_text((folder / "en_pud-ud-test.conllu").read_text(encoding="utf-8"))
    with pytest.raises(CorpusError, match=r"novel\.conllu: its name says no language"):
        by_language([path])


TEXTS = {
    "ar": "حمل الكتاب للولد المكتب للمعلم ۔",
    "en": "near the boy the book of the teacher carries the desk.",
    "fr": "devant le garçon le livre du professeur porte le bureau.",
    "ja": "本が学生で机を医者で運ぶ。",
    "zh": "书在学生里在医生里搬走桌子。",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_text_is_spelled_as_it_is_written(folder, language):
    documents = list(hs.read_corpus(folder / f"{language}_pud-ud-test.conllu"))
    assert [each.name for each in documents] == ["n00000", "n00001", "n00002"]
    assert documents[0].text.startswith(TEXTS[language])


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_has_the_tokens_of_its_characters(folder, language, tokenizer):
    """Of a byte-level tokenizer, which cuts most of these characters to pieces."""
    path = folder / f"{language}_pud-ud-test.conllu"
    documents, compared = list(hs.read_corpus(path)), 0
    for window in hs.windows(path, tokenizer, max_length=10_000):
        document = documents[window.document]
        assert len(window.words) == len(document.words)
        for own, first, last in zip(
            document.words, window.words.first, window.words.last, strict=True
        ):
            written = tokenizer.decode(window.tokens[first : last + 1].tolist())
            assert document.text[own.start : own.end] == written.strip()
            compared += 1
    assert compared > 100


@pytest.mark.parametrize(("language", "token"), [("fr", "du"), ("ar", "للولد")])
def test_words_of_a_token_that_they_do_not_spell_share_all_of_it(folder, language, token):
    document = next(iter(hs.read_corpus(folder / f"{language}_pud-ud-test.conllu")))
    place = next(
        i for i, own in enumerate(document.words) if document.text[own.start : own.end] == token
    )
    two = document.words[place : place + 2]
    assert len({(own.start, own.end) for own in two}) == 1
    assert [own.form for own in two] == (["de", "le"] if language == "fr" else ["ل", "الولد"])


def test_relations_look_back_as_each_language_writes(folder, tokenizer):
    """The object stands before its verb in Japanese alone, and the subject after it in Arabic."""
    from headscope.relations import relations_of

    asked = {
        relation.name: relation
        for relation in relations_of(["syntactic"])
        if relation.name.startswith(("nsubj:head", "nsubj:dep", "obj:"))
    }
    counts = {}
    for language in LANGUAGES:
        windows = hs.windows(folder / f"{language}_pud-ud-test.conllu", tokenizer)
        counts[language] = {
            name
            for name, relation in asked.items()
            if any(len(relation.pairs(window)) for window in windows)
        }
    verb_first, verb_last = {"nsubj:dep>head", "obj:dep>head"}, {"nsubj:head>dep", "obj:head>dep"}
    between = {"nsubj:head>dep", "obj:dep>head"}
    assert counts == {
        "ar": verb_first, "en": between, "fr": between, "ja": verb_last, "zh": between,
    }  # fmt: skip


def built(run: hs.Run) -> bool:
    """Whether any relation was asked in sentences made for it."""
    return any(facts["built_rules"] for facts in run.info["simple_rules"].values())


def test_a_run_on_another_language_asks_no_english_sentences(folder, gpt2_folder):
    how = {"types": ["syntactic"], "max_tokens": 20_000, "twin": False, "examples": False}
    own = {
        language: hs.classify(gpt2_folder, folder / f"{language}_pud-ud-test.conllu", **how)
        for language in ("en", "zh")
    }
    asked = {name: built(run) for name, run in own.items()}
    assert asked == {"en": True, "zh": False}
    said = "the text is zh: sentences made for contested queries, English, are left out"
    assert (said in own["zh"].info["notes"], said in own["en"].info["notes"]) == (True, False)
    none = hs.classify(gpt2_folder, folder / "en_pud-ud-test.conllu", **how, built=False)
    assert not built(none)
    assert "--no-built" in none.info["command"]


def test_documents_are_read_up_to_a_number_of_them(folder, tokenizer, gpt2_folder):
    path = folder / "ja_pud-ud-test.conllu"
    run = hs.classify(
        gpt2_folder, path, types=["positional"], documents=2, twin=False, examples=False
    )
    whole = hs.windows(path, tokenizer)
    two = sum(len(window) for window in whole if window.document < 2)
    assert run.info["provenance"]["tokens"] != 0
    assert run.info["text_read"]["tokens"] == two
    assert np.max([window.document for window in whole]) == 2
