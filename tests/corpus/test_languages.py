"""Treebanks of many scripts and word orders: their names, their text, and words on tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.treebank_languages import by_language
from headscope.errors import ChoiceError, CorpusError
from headscope.measure import text as text_of_run
from headscope.measure.text import CHALLENGE_SHARE, prepare_text
from headscope.relations import relations_of
from headscope.settings import Settings
from tests.helpers.treebanks import LANGUAGES, save_treebanks


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_treebanks(tmp_path_factory.mktemp("pud"), documents=3)


def test_the_files_of_a_language_are_one_corpus(folder, tmp_path):
    more = save_treebanks(tmp_path / "UD_English-More", ["en"], documents=1)
    found = by_language([folder, more])
    assert list(found) == list(LANGUAGES)
    assert [len(files) for files in found.values()] == [1, 2, 1, 1, 1]
    assert list(by_language([folder], ["zh", "ar"])) == ["ar", "zh"]
    with pytest.raises(ChoiceError, match="'de'"):
        by_language([folder], ["de"])
    for name in ("de_mine.conllu", "DE_pud-ud-test.conllu"):
        (tmp_path / name).write_text("x")
        with pytest.raises(CorpusError, match=name):
            by_language([tmp_path / name])


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_has_the_tokens_of_its_characters(folder, language, tokenizer):
    """The byte-level tokenizer cuts most of these characters to pieces."""
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


# a part of the sentences, which take most of the time
SYNTAX = {"types": ["syntactic"], "max_tokens": 3_000, "examples": False}


@pytest.mark.parametrize("language", ["en", "fr"])
@pytest.mark.parametrize("stated", ["", "other"])
def test_english_baselines_and_sentences_are_for_english_text_of_any_name(
    folder, gpt2_folder, tmp_path, language, stated
):
    """Of a name that states no language, or another one."""
    text = folder / f"{language}_pud-ud-test.conllu"
    without = hs.classify(gpt2_folder, text, challenge=False, **SYNTAX)
    other = {"en": "de_pud-ud-test.conllu", "fr": "en_pud-ud-test.conllu"}
    name = other[language] if stated else "my_text.conllu"
    (tmp_path / name).write_bytes((folder / f"{language}_pud-ud-test.conllu").read_bytes())
    run = hs.classify(gpt2_folder, tmp_path / name, **SYNTAX)
    is_english = language == "en"
    assert run.info["language"]["english"] is is_english
    more = run.evidence["hard_n"].sum() > without.evidence["hard_n"].sum()
    assert bool(more) is is_english
    are_fixed = ["reference_rate" in row for row in run.info["baselines"].values()]
    assert are_fixed == [is_english] * len(are_fixed)
    assert any("not known to be English" in note for note in run.info["notes"]) is not is_english
    assert "--no-challenge" not in run.info["command"]
    assert "--no-challenge" in without.info["command"]


def test_a_stated_language_comes_before_the_text_and_is_recorded(folder, gpt2_folder):
    french = hs.classify(
        gpt2_folder,
        folder / "fr_pud-ud-test.conllu",
        language="en-GB",
        **SYNTAX,
    )
    assert french.info["language"]["stated"] == french.info["settings"]["language"] == "en"
    assert all("reference_rate" in row for row in french.info["baselines"].values())
    assert "--language en" in french.info["command"]


def test_patterns_have_english_baselines_if_their_text_is_english(folder, tokenizer):
    def are_fixed(text: str, **stated: str) -> set[bool]:
        windows = hs.windows(folder / f"{text}_pud-ud-test.conllu", tokenizer)
        even = [np.tri(len(window))[None, None] for window in windows]
        patterns = [each / each.sum(-1, keepdims=True) for each in even]
        run = hs.score_patterns(patterns, windows, types=["syntactic"], progress=False, **stated)
        return {"reference_rate" in row for row in run.info["baselines"].values()}

    assert are_fixed("en") == are_fixed("fr", language="en") == {True}
    assert are_fixed("fr") == are_fixed("en", language="de") == {False}


def test_other_text_is_read_up_to_all_tokens_in_place_of_the_challenge_set(
    folder, gpt2_folder, monkeypatch
):
    """As if no sentence of the challenge set had been cut from its share."""
    monkeypatch.setattr(text_of_run, "CHALLENGE_BESIDE", 0)
    model = hs.load_model(gpt2_folder)
    relations = relations_of(["syntactic"], model.attention_kind)
    tokens = {}
    for language in ("en", "fr"):
        file = folder / f"{language}_pud-ud-test.conllu"
        settings = Settings(max_tokens=800, max_length=60)
        text = prepare_text(model, relations, [file], settings)
        read = list(text.stream)
        assert sum(map(len, read)) == text.natural.tokens
        assert len({id(window) for window in read}) == len(read)
        tokens[language] = text.natural.tokens
    assert tokens["en"] < 800 <= tokens["fr"]


def test_the_challenge_set_takes_its_share_of_the_tokens_and_text_what_is_left(
    folder, gpt2_folder, monkeypatch
):
    """Some tokens of it do not count."""
    monkeypatch.setattr(text_of_run, "CHALLENGE_BESIDE", 100)
    model = hs.load_model(gpt2_folder)
    relations = relations_of(["syntactic"], model.attention_kind)
    settings = Settings(max_tokens=800, max_length=60)
    text = prepare_text(model, relations, [folder / "en_pud-ud-test.conllu"], settings)
    tokens = sum(map(len, text.challenge))
    # up to the next sentence
    assert CHALLENGE_SHARE * 800 - 60 < tokens <= CHALLENGE_SHARE * 800
    assert text.natural.max_tokens == 800 - (tokens - 100)


def test_documents_are_read_up_to_a_number_of_them(folder, tokenizer, gpt2_folder):
    path = folder / "ja_pud-ud-test.conllu"
    run = hs.classify(gpt2_folder, path, types=["positional"], documents=2, examples=False)
    whole = hs.windows(path, tokenizer)
    assert run.info["text_read"]["tokens"] == sum(len(w) for w in whole if w.document < 2)
    assert max(window.document for window in whole) == 2
