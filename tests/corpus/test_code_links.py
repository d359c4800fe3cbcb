"""Gold links of Python files: names, brackets and assignments as Python itself reads them."""

from __future__ import annotations

import ast
import bisect
import os
import symtable
from pathlib import Path

from headscope.corpus.code import read_python

LIBRARY = Path(os.__file__).parent
FILES = ["argparse", "ast", "bisect", "calendar", "cmd", "configparser", "copy", "csv"]


def test_names_are_resolved_as_python_does():
    """By the interpreter's own words: what `symtable` calls local, a definition lies in there."""
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
