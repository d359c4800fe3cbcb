"""Heads that know a Python file's grammar earn their tags, and habits earn none."""

from __future__ import annotations

import ast
import bisect
import os
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.align import TokenizedDocument
from headscope.corpus.code import read_python
from headscope.corpus.code.links import KINDS
from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.measure.fit_baselines import fit_baselines
from headscope.relations.code import TYPE
from headscope.stimuli.built import built_windows
from headscope.stimuli.text import TextWindows
from tests.relations.looking import candidate, knows, pattern, same_word, words_back

LIBRARY = Path(os.__file__).parent
FILES = [
    "argparse", "ast", "bisect", "calendar", "cmd", "configparser", "copy", "csv", "fnmatch",
    "gettext", "heapq", "queue", "shlex", "string", "textwrap", "uuid", "zipapp",
]  # fmt: skip
RICH = [
    "asyncio/base_events", "asyncio/windows_events", "ctypes/wintypes", "difflib", "doctest", "glob",
    "email/contentmanager", "json/encoder", "re/_compiler", "shutil", "smtpd",
    "test/test_decorators", "test/test_scope", "tokenize", "unittest/loader", "unittest/mock",
    "urllib/request", "xml/etree/ElementPath",
]  # fmt: skip
"""What calls its own functions, and has functions within functions; not all are in each Python."""


class ByWord:
    """A token for each word, so that whole functions stand in a window."""

    bos, bos_string = 1, "<bos>"

    def encode(self, document: Document) -> TokenizedDocument:
        forms = [word.form for word in document.words]
        ids = np.array([zlib.crc32(form.encode()) % 30_000 for form in forms], np.int64)
        offsets = np.array([(word.start, word.end) for word in document.words], np.int64)
        return TokenizedDocument(document, ids, forms, offsets)

    def spell(self, tokens: Sequence[int]) -> list[str]:
        raise NotImplementedError


@cache
def code() -> tuple[Window, ...]:
    """What a run of 12,000 tokens reads of these files."""
    files = [path for name in FILES + RICH if (path := LIBRARY / f"{name}.py").is_file()]
    text = TextWindows(files, ByWord(), max_tokens=12_000, max_length=300, seed=0)
    own = list(text)
    made = built_windows(ByWord(), 300, has_code=True)
    found = fit_baselines(own, TYPE.relations, text.remaining(), made, budget=18_000)
    return (*own, *found.contested_text, *found.built)


HABITS = {
    **{f"nearest {kind}": candidate(kind, -1) for kind in KINDS},
    **{f"farthest {kind}": candidate(kind, 0) for kind in KINDS},
    **{f"last but one {kind}": candidate(kind, -2) for kind in KINDS},
    "same word": same_word(-1),
    "where the word first stands": same_word(0),
    "where the word stands second": same_word(1),
    "where the word stood before last": same_word(-2),
    "two back": words_back(2),
    "one back": words_back(1),
}


@pytest.fixture(scope="module")
def evidence():
    looks = {**{kind: knows(kind) for kind in KINDS}, **HABITS}

    def patterns(window: Window) -> np.ndarray:
        return np.stack([pattern(window, look) for look in looks.values()])[None]

    run = hs.score_patterns(patterns, code(), types=["code"])
    found = run.evidence
    return found.assign(name=[list(looks)[head] for head in found["head"]])


@pytest.fixture
def verdicts(evidence) -> dict[str, dict[str, str]]:
    return {
        name: dict(zip(own["relation"], own["verdict"], strict=True))
        for name, own in evidence.groupby("name")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_knows_is_found(kind, verdicts):
    assert verdicts[kind][kind] == "tagged"
    assert list(verdicts[kind].values()).count("tagged") == 1


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_is_refused(habit, verdicts):
    assert "tagged" not in set(verdicts[habit].values())


def test_names_are_resolved_as_python_does():
    """By the interpreter's own words: what `symtable` calls local, a definition lies in there."""
    import symtable

    for name in FILES[:8]:
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


def test_what_is_assigned_is_bound_after_it_is_worked_out():
    text = "def f(n, m):\n    n = n + m\n    return n\n"
    found = {
        arrow.query: arrow.right[0]
        for arrow in read_python(Path("f.py"), text).arrows
        if arrow.kind == "definition"
    }
    assert found[text.index("n + m")] == text.index("n, m")
    assert found[text.rindex("n\n")] == text.index("n = n")


def test_positions_hold_beside_letters_of_several_bytes():
    text = "def f(größe, ß):\n    x = 'ü', größe\n    return x, ß, größe\n"
    document = read_python(Path("f.py"), text)
    forms = {word.start: word.form for word in document.words}
    told = [(forms[a.query], forms[a.right[0]]) for a in document.arrows if a.kind == "definition"]
    assert told == [("größe", "größe"), ("x", "x"), ("ß", "ß"), ("größe", "größe")]
