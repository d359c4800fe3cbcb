"""Input that is made to be hard: huge numbers, deep nesting, long lines, many of anything."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.corpus import text as text_module
from headscope.corpus.document import Document
from headscope.corpus.entities import MOST_OPEN
from headscope.corpus.read import MOST_BYTES, corpus_files, read_corpus
from headscope.corpus.text import LONGEST, read_texts
from headscope.errors import CorpusError
from tests.limits import in_little_memory, no_hang

HUGE = "1" * 1_000_000
MANY = 50_000


def sentence(words: int, entity: Callable[[int], str] = lambda i: "_") -> str:
    """Each word governed by the next: as deep as a tree can be."""
    heads = [*range(2, words + 1), 0]
    return "".join(
        f"{i}\ta\ta\tNOUN\t_\t_\t{heads[i - 1]}\tobj\t_\t{entity(i)}\n" for i in range(1, words + 1)
    )


def read(tmp_path: Path, text: str) -> list[Document]:
    path = tmp_path / "hard.conllu"
    path.write_text(text, encoding="utf-8")
    return read_corpus(path)


ONE = sentence(1)
COUNT_WORDS = """
import sys
from headscope import read_corpus
print(sum(len(document.words) for document in read_corpus(sys.argv[1])))
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ONE.replace("\t0\t", f"\t{HUGE}\t"), "is not a valid head"),
        (ONE.replace("\t0\t", f"\t-{HUGE}\t"), "is not a valid head"),
        (ONE.replace("\t0\t", "\t1000000000\t"), "'1000000000' is not a valid head"),
        (HUGE + ONE, "is not a valid ID"),
        (f"1.{HUGE}" + ONE[1:], "is not a valid ID"),
        (f"1-{HUGE}" + ONE[1:], "is not a valid ID"),
        ("1-999999999" + ONE[1:] + ONE, "range 1-999999999 does not fit"),
        ("_" + ONE[1:], "'_' is not a valid ID"),
        (f"{ONE}\n{sentence(21)}".replace("\n\n", "\n\n1-21\tx" + "\t_" * 8 + "\n"), "21 words of one token"),
        (sentence(1, lambda i: "Entity=" + "e" * 10**6), "cannot read Entity=eeee"),
        (sentence(2 * MOST_OPEN, lambda i: f"Entity=(e{i}"), f"{MOST_OPEN + 1} entity brackets"),
        (sentence(1, lambda i: "Entity=" + "(e)" * MANY), f"{MANY} entity brackets"),
        (sentence(1, lambda i: "Entity=" + "(" * MANY), "cannot read Entity=(((("),
        (sentence(1, lambda i: f"Entity=({'e' * 10**6}"), "unbalanced entity brackets"),
        ("x" + "\t" * 10**6, "1000001 columns"),
    ],
    ids=lambda value: value[:30].strip().replace("\t", " ") if isinstance(value, str) else None,
)  # fmt: skip
def test_what_cannot_be_read_is_refused_at_once_and_in_few_words(tmp_path, text, message):
    with no_hang(), pytest.raises(CorpusError) as error:
        read(tmp_path, text)
    assert message in str(error.value)
    assert len(str(error.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (sentence(MANY), MANY),
        ("\n".join([ONE.replace("a", "a" * 400)] * (MANY // 2)), MANY // 2),
        (sentence(MANY, lambda i: "Entity=(e" if i <= 99 else f"Entity={'e)' * 99 * (i == MANY)}"), MANY),
        (ONE.replace("a", "a" * 10**6), 1),
        ("# " + "x" * 10**6 + "\n" + ONE, 1),
        ("\n" * 10**6 + ONE, 1),
    ],
    ids=["chain", "sentences", "long mentions", "long word", "long comment", "empty lines"],
)  # fmt: skip
def test_the_cost_of_a_treebank_does_not_grow_with_the_square_of_its_size(tmp_path, text, words):
    (tmp_path / "hard.conllu").write_text(text, encoding="utf-8")
    assert in_little_memory(COUNT_WORDS, tmp_path / "hard.conllu") == f"{words}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a" + "." * 6 * MANY + "b", 6 * MANY + 2),
        ("a" + ".'" * 3 * MANY + "b", 6 * MANY + 2),
        ("a" + "\n \n" * MANY + "b", 2),
        ("a\n" + " " * MANY + "b", 2),
        ("a" * MANY, 1),
        ("a'" * MANY + "b", 1),
    ],
    ids=["marks", "marks and quotes", "empty lines", "blanks", "letters", "apostrophes"],
)
def test_the_cost_of_plain_text_does_not_grow_with_the_square_of_its_size(tmp_path, text, words):
    (tmp_path / "hard.txt").write_text(text, encoding="utf-8")
    assert in_little_memory(COUNT_WORDS, tmp_path / "hard.txt") == f"{words}\n"


def test_a_long_text_is_several_documents_read_one_by_one():
    line = "One day. " * 9 + "\n"
    text = "\n" * LONGEST + line + " " * LONGEST + line * 2
    documents = list(read_texts("long", text))
    assert [(d.name, d.text.strip(), len(d.words)) for d in documents] == [
        ("long.1", line.strip(), 27), ("long.2", (line * 2).strip(), 54),
    ]  # fmt: skip
    assert max(len(document.text) for document in documents) <= LONGEST
    with pytest.raises(CorpusError, match="no word in this text"):
        list(read_texts("blank", " " * 3 * LONGEST))


@pytest.mark.parametrize(("mark", "end"), [("\n\n", 12), ("\n", 11), (" ", 11), ("x", 20)])
def test_a_long_text_is_cut_at_the_best_place(monkeypatch, mark, end):
    monkeypatch.setattr(text_module, "LONGEST", 20)
    text = "a" * 10 + mark + "b" * 30
    documents = list(read_texts("t", text))
    assert "".join(document.text for document in documents) == text
    assert len(documents[0].text) == end


def test_a_run_that_reads_the_beginning_of_a_long_text_does_not_wait_for_its_end(tmp_path):
    (tmp_path / "hard.txt").write_bytes(b"." * (MOST_BYTES // 4))
    code = """
import sys
from pathlib import Path
from headscope.corpus.read import read_documents
print(next(read_documents([Path(sys.argv[1])])).name)
"""
    assert in_little_memory(code, tmp_path / "hard.txt") == "hard.1\n"


def test_a_pipe_a_device_and_a_name_that_cannot_be_are_no_corpus(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    for name in ("pipe.txt", "zero.txt"):
        with no_hang(), pytest.raises(CorpusError, match=f"{name}: neither a file nor a folder"):
            corpus_files([tmp_path / name])
    with pytest.raises(CorpusError, match="cannot be read: File name too long"):
        corpus_files(["x" * 5000])
    with pytest.raises(CorpusError, match="cannot be read: embedded null"):
        corpus_files(["x\0.txt"])


def test_a_file_that_would_fill_the_memory_is_refused_unread(tmp_path):
    path = tmp_path / "sparse.txt"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES * 10_000)
    code = """
import sys
from headscope import HeadscopeError, read_corpus
try:
    read_corpus(sys.argv[1])
except HeadscopeError as error:
    print(error)
"""
    said = in_little_memory(code, path)
    assert (
        said
        == f"{path}: 1,000,000 MB, and 100 MB at most can be read; split it into several files\n"
    )


def test_one_long_word_does_not_widen_all_words_of_its_window():
    """An array of strings is as wide as its longest: here 256 words, one with a huge lemma."""
    code = """
import numpy as np
from headscope.corpus.align import Cuts, TokenizedDocument, cut_windows
from headscope.corpus.document import Document, Mention, Word
huge = "x" * 10**7
words = [Word("a", 2 * i, 2 * i + 1, 0, huge if i == 9 else "a", "NOUN", deprel="obj") for i in range(255)]
mentions = [Mention("e", i, i, i) for i in range(255)] + [Mention(huge, 9, 9, 9)]
document = Document("d", "a " * 255, tuple(words), tuple(mentions))
offsets = np.array([(2 * i, 2 * i + 1) for i in range(255)])
tokens = TokenizedDocument(document, np.arange(255), ["a"] * 255, offsets)
for window in cut_windows(tokens, 0, "<s>", max_length=256, cuts=Cuts()):
    print(len(window.words), len(window.mentions), len(window.words.lemma[9]) < 1000)
"""
    assert in_little_memory(code) == "255 256 True\n"
