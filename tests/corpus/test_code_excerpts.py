"""Excerpts of a file say what the file says, and leave out what lies between."""

from __future__ import annotations

from pathlib import Path

from headscope.corpus.code import read_python
from headscope.corpus.code.excerpts import DENSE, excerpts, without_excerpted
from headscope.corpus.document import Document

FILLER = "".join(f"def filler_{i}(value):\n    return value + {i}\n" for i in range(80))
CODE = f"""\
import os
import sys
def pad(text, width):
    return text + sys.path * width
{FILLER}
def main(width, text):
    first = pad(text, width)
    again = pad(text, width)
    return pad(sys.path, os.sep), pad(sys.path, os.sep), sys, os
"""


def read(code: str) -> Document:
    return read_python(Path("tools/pad.py"), code)


def said(document: Document) -> list[tuple[str, str, str]]:
    """By the words alone: kind, the query, and what it points to."""
    forms = {word.start: word.form for word in document.words}
    return [(a.kind, forms[a.query], forms[a.right[-1]]) for a in document.arrows]


def test_an_excerpt_holds_the_function_and_what_it_points_to():
    (found,) = excerpts(read(CODE))
    assert len(found.words) < 100 < len(read(CODE).words)
    assert found.text.startswith("import os\nimport sys\ndef pad(text, width):")
    assert "def main" in found.text
    calls = said(found).count(("call", "pad", "pad"))
    assert calls == 4
    assert found.text.count("def filler") <= calls  # a rival each
    assert ("parameter", "width", "width") in said(found)
    assert ("import", "sys", "sys") in said(found)
    assert {*said(found)} <= {*said(read(CODE))}
    assert {kind for kind, _, _ in said(found)} <= {*DENSE}
    left = {arrow.kind for arrow in without_excerpted(read(CODE)).arrows}
    assert "bracket" in left
    assert not left & {*DENSE}


def test_methods_stand_under_the_line_of_their_class():
    body = "".join(f"    def other_{i}(self):\n        return self\n" for i in range(60))
    code = (
        "class Pads:\n    def pad(self, text, width):\n        return text\n"
        f"{body}    def all(self, a, b):\n"
        "        return self.pad(b, a), self.pad(b, a), self.pad(a, b)\n"
    )
    (found,) = excerpts(read(code))
    assert found.text.startswith("class Pads:\n    def pad(")
    assert said(found).count(("call", "pad", "pad")) == 3


def test_a_file_that_asks_nothing_has_none():
    assert list(excerpts(read("x = 1\ny = x\n"))) == []
    assert list(excerpts(read("def f(): return 1\n"))) == []


def test_statements_that_share_a_line_are_kept_whole():
    code = CODE.replace("import os\nimport sys\n", "import os; import sys\n")
    (found,) = excerpts(read(code))
    assert found.text.startswith("import os; import sys\n")
