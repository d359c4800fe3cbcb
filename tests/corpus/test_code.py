"""Files of Python as a corpus: what is read, and gold links."""

from __future__ import annotations

import ast
import bisect
import os
import symtable
from pathlib import Path

import pytest

import headscope as hs
from headscope.corpus.python_files import read_python
from headscope.corpus.read import corpus_files, read_corpus
from headscope.errors import CorpusError
from headscope.stimuli.natural_text import TextWindows
from tests.helpers.prose import mini_tokenizer

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
    assert {arrow.kind for arrow in document.arrows} == {"definition", "bracket", "block"}


def test_a_file_that_does_not_parse_is_named_with_its_line(folder, tokenizer):
    path = folder / "bad.py"
    path.write_text(BAD)
    with pytest.raises(CorpusError, match=r"bad\.py:2"):
        read_corpus(path)
    assert len(read_corpus(folder)) == 3
    with pytest.raises(CorpusError, match=r"bad\.py:2"):
        hs.windows(path, tokenizer)


@pytest.mark.parametrize("content", [BAD.encode(), b"x = '\xe9'\n", b"", b"x = 1\0\n"])
def test_what_is_passed_over_in_a_folder_is_counted(content, folder):
    (folder / "bad.py").write_bytes(content)
    text = TextWindows([folder], mini_tokenizer(), max_tokens=5000, max_length=200, seed=0)
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


LIBRARY = Path(os.__file__).parent
FILES = ["argparse", "ast", "bisect", "calendar", "cmd", "configparser", "copy", "csv"]


def test_names_are_resolved_as_python_does():
    """Definitions of names that `symtable` calls local lie in the same function."""
    for name in FILES:
        path = LIBRARY / f"{name}.py"
        text = path.read_text()
        document = read_python(path, text)
        tables = {}
        waiting = [symtable.symtable(text, name, "exec")]
        while waiting:
            table = waiting.pop()
            waiting += table.get_children()
            if table.get_type() == "function":
                tables.setdefault((table.get_name(), table.get_lineno()), table)
        starts = [0, *(i + 1 for i, char in enumerate(text) if char == "\n")]
        spans = sorted(
            (node.lineno, node.end_lineno, node.name)
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef) and not node.decorator_list
        )
        forms = {word.start: word.form for word in document.words}
        checked = 0
        for arrow in document.arrows:
            if arrow.kind != "definition":
                continue
            query, key = (bisect.bisect_right(starts, p) for p in (arrow.query, arrow.right[0]))
            around = [span for span in spans if span[0] < query <= span[1]]
            if len(around) != 1 or (around[0][2], around[0][0]) not in tables:
                continue
            table = tables[around[0][2], around[0][0]]
            if forms[arrow.query] not in table.get_identifiers():
                continue  # of a comprehension or a lambda within
            inside = around[0][0] <= key <= around[0][1]
            assert forms[arrow.query] == forms[arrow.right[0]]
            if table.get_children():
                continue
            assert inside == table.lookup(forms[arrow.query]).is_local()
            checked += 1
        assert checked > 5 or name in ("bisect",)


def test_brackets_within_strings_and_names_within_f_strings_are_left_out():
    text = 'def f(a):\n    b = "( ]" + f"{a[0]}"\n    return (a, b)\n'
    document = read_python(Path("f.py"), text)
    queries = {text[arrow.query : arrow.query + 1] for arrow in document.arrows}
    brackets = [arrow for arrow in document.arrows if arrow.kind == "bracket"]
    assert [(text.index("(a"),), (text.rindex("("),)] == [arrow.right for arrow in brackets]
    assert "0" not in queries
    inside = range(text.index('f"'), text.index("\n    return"))
    assert not [arrow for arrow in document.arrows if arrow.query in inside]


def test_positions_hold_beside_letters_of_several_bytes():
    text = "def f(größe, ß):\n    x = 'ü', größe\n    return x, ß, größe\n"
    document = read_python(Path("f.py"), text)
    forms = {word.start: word.form for word in document.words}
    told = [(forms[a.query], forms[a.right[0]]) for a in document.arrows if a.kind == "definition"]
    assert told == [("größe", "größe"), ("x", "x"), ("ß", "ß"), ("größe", "größe")]
