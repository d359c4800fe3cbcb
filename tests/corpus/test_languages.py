"""Treebanks of many scripts and word orders: their names, their text, and words on tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

import headscope as hs
from headscope.corpus.treebank_languages import by_language
from headscope.errors import ChoiceError, CorpusError
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


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_run_on_another_language_reads_no_english_challenge_set(folder, gpt2_folder, language):
    run, without = (
        hs.classify(
            gpt2_folder,
            folder / f"{language}_pud-ud-test.conllu",
            types=["syntactic"],
            max_tokens=20_000,
            examples=False,
            challenge=challenge,
        )
        for challenge in (True, False)
    )
    more = run.evidence["hard_n"].sum() > without.evidence["hard_n"].sum()
    assert more == (language == "en")
    note = "the text is zh: the challenge set, which is English, is left out"
    assert (note in run.info["notes"]) == (language == "zh")
    assert "--no-challenge" not in run.info["command"]
    assert "--no-challenge" in without.info["command"]


def test_documents_are_read_up_to_a_number_of_them(folder, tokenizer, gpt2_folder):
    path = folder / "ja_pud-ud-test.conllu"
    run = hs.classify(gpt2_folder, path, types=["positional"], documents=2, examples=False)
    whole = hs.windows(path, tokenizer)
    assert run.info["text_read"]["tokens"] == sum(len(w) for w in whole if w.document < 2)
    assert max(window.document for window in whole) == 2
