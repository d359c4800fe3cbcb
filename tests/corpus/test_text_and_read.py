from __future__ import annotations

import gzip
import lzma
import re
import unicodedata

import pytest

from headscope.corpus import text as text_module
from headscope.corpus.read import corpus_files, read_corpus
from headscope.corpus.text import LONGEST, read_text, read_texts
from headscope.errors import CorpusError
from headscope.stimuli.natural_text import TextWindows
from tests.helpers.prose import mini_tokenizer
from tests.limits import no_hang


def test_words_and_sentences_of_plain_text():
    document = read_text("t", 'He didn\'t. "Yes!" she said.\n\nThe end')
    assert [w.form for w in document.words] == 'He didn\'t . " Yes ! " she said . The end'.split()
    assert [w.sentence for w in document.words] == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3]
    assert all(document.text[w.start : w.end] == w.form for w in document.words)
    assert (document.zero_mentions, document.skipped_mentions) == (0, 0)


@pytest.mark.parametrize(
    "words",
    [
        "हिन्दी क्षत्रिय में \u0964",  # Hindi, with the mark that ends its sentences
        "தமிழ் மொழி",  # Tamil
        "ภาษาไทย ที่นี่",  # Thai
        "ٱلْعَرَبِيَّةُ كِتَابٌ \u061f",  # vocalised Arabic
        "בְּרֵאשִׁית בָּרָא",  # vocalised Hebrew
        "می\u200cخواهم خانه\u200cها",  # Persian, with zero-width non-joiners
        "ශ්\u200dරී ලංකා",  # Sinhala, with a zero-width joiner
        "co\u00adop\u00ader\u00ada\u00adtion works",
        "m² ½ ⅣⅣ _x_ ①",
        "don't l’été rock’n’roll",
        "👩\u200d🚀 🇫🇮 ☺\ufe0f - \u203f % \ue000 \u0301 \x80",
    ],
)
def test_words_of_every_script_are_those_between_blanks(words):
    assert [word.form for word in read_text("t", words).words] == words.split()
    assert [
        word.form for word in read_text("t", words.replace(" ", "\u200b")).words
    ] == words.split()


def test_decomposed_letters_make_the_same_words():
    text = "L’été, où « Noël » était déjà passé : ça va ? Việt Nam, Åland, 각하"
    forms = [word.form for word in read_text("t", text).words]
    decomposed = read_text("t", unicodedata.normalize("NFD", text)).words
    assert [unicodedata.normalize("NFC", word.form) for word in decomposed] == forms
    assert len(forms) == 19


def test_a_folder_is_read_in_the_order_of_names_and_notes_beside_a_treebank_are_not(tmp_path):
    for name in ("b.conllu", "a.conllu", "LICENSE.txt"):
        (tmp_path / name).write_text("x")
    assert [p.name for p in corpus_files([tmp_path])] == ["a.conllu", "b.conllu"]


def test_what_is_not_read_of_a_folder_is_named_by_suffix_with_its_number(tmp_path):
    tokenizer = mini_tokenizer()
    folder = tmp_path / "texts"
    (folder / "more").mkdir(parents=True)
    (folder / "a.txt").write_text("The old king lost his ring.")
    (folder / "b.txt").write_text("She found it.")

    def notes() -> list[str]:
        text = TextWindows([folder], tokenizer, max_tokens=500, max_length=50, seed=0)
        assert {window.name.split("#")[0] for window in text} == {"a", "b"}
        return [note for note in text.notes if str(folder) in note]

    assert notes() == []
    others = ["c.docx", "more/d.docx", "e.PDF", "README.md", "LICENSE", ".hidden", "more/f.csv.gz"]
    for name in others:
        (folder / name).write_bytes(b"x")
    (note,) = notes()
    listed = re.findall(r"(no suffix|\.\w+) \((\d+)\)", note)
    expected = {".docx": "2", ".pdf": "1", ".md": "1", "no suffix": "1", ".csv": "1"}
    assert dict(listed) == expected
    for path in (folder / "a.txt", folder / "b.txt", folder / "README.md"):
        path.unlink()
    with pytest.raises(CorpusError, match="docx"):
        corpus_files([folder])


def test_files_beside_a_corpus_that_ships_are_not_named():
    text = TextWindows(["gum"], mini_tokenizer(), max_tokens=100, max_length=50, seed=0)
    assert list(text)
    assert not [note for note in text.notes if ".csv" in note]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.conllu", "nowhere.conllu"),
        ("table.csv", ".conllu, .txt, .md, .py"),
        ("empty", "empty"),
    ],
)
def test_what_is_no_corpus_is_refused_by_name(tmp_path, name, message):
    (tmp_path / "table.csv").write_text("a,b")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match=message.replace(".", r"\.")) as error:
        corpus_files([tmp_path / name])
    assert name in str(error.value)


def test_a_long_text_is_several_documents_read_one_by_one():
    line = "One day. " * 9 + "\n"
    text = "\n" * LONGEST + line + " " * LONGEST + line * 2
    documents = list(read_texts("long", text))
    assert [(d.name, d.text.strip(), len(d.words)) for d in documents] == [
        ("long.1", line.strip(), 27),
        ("long.2", (line * 2).strip(), 54),
    ]
    assert max(len(document.text) for document in documents) <= LONGEST
    with pytest.raises(CorpusError, match="blank"):
        list(read_texts("blank", " " * 3 * LONGEST))


@pytest.mark.parametrize(("mark", "end"), [("\n\n", 12), ("\n", 11), (" ", 11), ("x", 20)])
def test_a_long_text_is_cut_at_the_best_place(monkeypatch, mark, end):
    monkeypatch.setattr(text_module, "LONGEST", 20)
    text = "a" * 10 + mark + "b" * 30
    documents = list(read_texts("t", text))
    assert "".join(document.text for document in documents) == text
    assert len(documents[0].text) == end


@pytest.mark.parametrize(
    "text",
    ["." * 300_000, ".'" * 150_000, "\n \n" * 50_000, " " * 50_000, "a" * 50_000, "a'" * 50_000],
)
def test_the_cost_of_a_text_does_not_grow_with_the_square_of_its_length(text):
    with no_hang():
        assert list(read_texts("t", f"a{text}b"))


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_compressed_file_holds_the_documents_of_the_plain_one(
    tmp_path, keys_file, suffix, compress
):
    path, whole = tmp_path / f"keys.conllu{suffix}", compress(keys_file.read_bytes())
    path.write_bytes(whole)
    assert read_corpus(path) == read_corpus(keys_file)
    for damaged in (b"word", whole[:-20], whole[:40] + b"!" + whole[41:]):
        path.write_bytes(damaged)
        with pytest.raises(CorpusError, match=path.name):
            read_corpus(path)
