"""Files of Python as a corpus: what is read, what is passed over, and what is said of it."""

from __future__ import annotations

import pytest

import headscope as hs
from headscope.corpus.read import corpus_files, read_corpus
from headscope.errors import CorpusError
from headscope.stimuli.text import TextWindows

GOOD = "def f(a, b):\n    a = a + b\n    return a, (b, [a])\n"
BAD = "x = 1\ndef (:\n"


@pytest.fixture
def folder(tmp_path):
    own = tmp_path / "src"
    (own / "inner").mkdir(parents=True)
    for number in range(3):
        (own / "inner" / f"m{number}.py").write_text(GOOD * (number + 1))
    (own / "LICENSE.txt").write_text("Do what you like.")
    return own


def test_code_is_read_where_there_is_more_of_it_than_text(folder):
    assert {path.suffix for path in corpus_files([folder])} == {".py"}
    for number in range(4):
        (folder / f"t{number}.txt").write_text("Some words.")
    assert {path.suffix for path in corpus_files([folder])} == {".txt"}


def test_lines_are_sentences_and_words_are_names_and_marks(folder):
    (document,) = read_corpus(folder / "inner" / "m0.py")
    assert document.name == "inner.m0"
    assert [word.form for word in document.words[:8]] == ["def", "f", "(", "a", ",", "b", ")", ":"]
    lines = {GOOD.count("\n", 0, word.start) for word in document.words}
    assert len({word.sentence for word in document.words}) == len(lines)
    assert {arrow.kind for arrow in document.arrows} >= {"definition", "bracket", "return", "block"}


def test_a_file_that_does_not_parse_is_named_with_its_line(folder, tokenizer):
    path = folder / "bad.py"
    path.write_text(BAD)
    with pytest.raises(CorpusError, match=r"bad.py:2: no Python"):
        read_corpus(path)
    assert len(read_corpus(folder)) == 3
    with pytest.raises(CorpusError, match=r"bad.py:2: .* nothing else to read"):
        hs.windows(path, tokenizer)


@pytest.mark.parametrize("content", [BAD.encode(), b"x = '\xe9'\n", b"", b"x = 1\0\n"])
def test_what_is_passed_over_in_a_folder_is_counted(content, folder, tokenizer):
    from headscope.models.tokenizer import Tokenizer

    (folder / "bad.py").write_bytes(content)
    text = TextWindows(
        [folder], Tokenizer(tokenizer, name="it"), max_tokens=5000, max_length=200, seed=0
    )
    assert {window.name.split("#")[0] for window in text} == {"inner.m0", "inner.m1", "inner.m2"}
    (note,) = [note for note in text.notes if "passed over" in note]
    assert note.startswith("1 files of code passed over (first ")
    assert "bad.py" in note


def test_every_arrow_begins_and_ends_at_its_words_whatever_the_tokens(folder, tokenizer):
    kinds = set()
    for window in hs.windows(folder, tokenizer, max_length=200):
        own, ends = window.arrows, set(window.words.last.tolist())
        assert set(own.query.tolist()) <= ends
        assert set(own.last.tolist()) <= ends
        assert (own.first <= own.last).all()
        assert (own.last < own.query).all()
        for query, last, kind in zip(own.query, own.last, own.kind, strict=True):
            if kind == "bracket":
                assert any(mark in window.strings[query] for mark in ")]}")
                assert any(mark in window.strings[last] for mark in "([{")
        kinds |= set(own.kind.tolist())
    assert {"definition", "bracket"} <= kinds
