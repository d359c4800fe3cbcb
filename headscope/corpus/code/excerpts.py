"""Excerpts of a Python file: a function beside what it calls and imports, however far above.

A definition often stands farther from its use than a window reaches. What lies between is left
out, whole statements of a module or a class at a time, so that an excerpt is Python too, and what
its places point back to is what they point to in the file. A statement farther up that has the
same word stays where there is one: else "where the word first stands" is always right.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headscope.corpus.arrows import Arrow, ArrowTable
from headscope.corpus.code.links import KINDS
from headscope.corpus.code.python import read_python
from headscope.corpus.document import Document
from headscope.errors import CorpusError

LONGEST, LONGEST_BESIDE = 240, 60
"""Words of an excerpt, and of each statement that stands in it beside the asking one."""
DENSE = {"call": 60, "parameter": 60, "import": 60, "return": 240}
"""Words of an excerpt for each query of a kind that may be contested, at most: only functions
within functions make a `return` doubtful, and they are rare."""


@dataclass(frozen=True)
class _Part:
    """Lines that belong together: a statement of the module, or of a class in it."""

    start: int
    end: int
    """Behind its last line."""
    words: int
    asks: bool
    """Whether it is a function; tables of calls at a module's top are much of one thing."""
    header: int | None = None
    """The part with the line that opens its class."""


def excerpts(document: Document) -> Iterator[Document]:
    """Of a file's functions those that ask much in few words, each with what it points to.

    Only queries of `DENSE` are asked in them.

    Args:
        document: a Python file, from `read_python`.
    """
    asked = [each for each in document.arrows if each.kind in DENSE]
    if not asked:
        return
    parts = _parts(document)
    starts = [part.start for part in parts]
    forms = {word.start: word.form for word in document.words}
    standing: dict[str, list[int]] = {}
    for word in document.words:
        standing.setdefault(word.form, []).append(word.start)
    mentions = {
        each.query: [place for place in standing[form] if place < each.right[-1]]
        for each in asked
        if (form := forms.get(each.query))
    }
    wanted: dict[int, list[Arrow]] = {}
    for each in asked:
        part = bisect_right(starts, each.query) - 1
        if parts[part].asks:
            wanted.setdefault(part, []).append(each)
    for number, (part, own) in enumerate(wanted.items()):
        kept = _kept(parts, starts, part, own, mentions)
        found = _excerpt(document, [parts[i] for i in kept], own, f"{document.name}~{number}")
        if found is not None and len(found.words) <= _room(found):
            yield found


def is_code(document: Document) -> bool:
    """Whether a document is code, with names and blocks that point somewhere."""
    return any(each.kind in KINDS for each in document.arrows)


def holds_code(arrows: ArrowTable) -> bool:
    """Whether some of a window's arrows are of code."""
    return bool(np.isin(arrows.kind, KINDS).any())


def without_excerpted(document: Document) -> Document:
    """The document without what its excerpts ask."""
    kept = tuple(each for each in document.arrows if each.kind not in DENSE)
    return replace(document, arrows=kept)


def _parts(document: Document) -> list[_Part]:
    """All of a file in order; nothing where statements share a line."""
    text = document.text
    tree = ast.parse(text)
    lines = [0]
    for line in text.split("\n"):
        lines.append(lines[-1] + len(line) + 1)
    words = [word.start for word in document.words]
    found: list[_Part] = []

    def add(first: int, end: int, node: ast.stmt, header: int | None = None) -> None:
        start, stop = lines[first - 1], lines[end]
        if found and start < found[-1].end:  # a second statement of the line
            return
        count = bisect_right(words, stop - 1) - bisect_right(words, start - 1)
        asks = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        found.append(_Part(start, stop, count, asks, header))

    for node in tree.body:
        first, end = _lines(node)
        if isinstance(node, ast.ClassDef) and _lines(node.body[0])[0] > node.lineno:
            header = len(found)
            add(first, _lines(node.body[0])[0] - 1, node)
            for inner in node.body:
                add(*_lines(inner), inner, header if len(found) > header else None)
        else:
            add(first, end, node)
    return found


def _lines(node: ast.stmt) -> tuple[int, int]:
    """First and last line, decorators included."""
    own = [each.lineno for each in getattr(node, "decorator_list", ())]
    return min([node.lineno, *own]), node.end_lineno or node.lineno


def _kept(
    parts: Sequence[_Part],
    starts: Sequence[int],
    part: int,
    arrows: Sequence[Arrow],
    mentions: Mapping[int, Sequence[int]],
) -> list[int]:
    """The asking part, and as far as there is room those with what it points to, and a rival.

    And a part above these that has the same word, the shortest.
    """

    def of(place: int) -> int:
        return bisect_right(starts, place) - 1

    kept = {part}
    for each in arrows:
        rivals = [place for place in each.others if place > each.right[-1]][:1]
        rivals = rivals or list(each.others[-1:])
        above = {of(place): place for place in mentions.get(each.query, ())}
        above = {own: place for own, place in above.items() if 0 <= own < of(each.right[-1])}
        shortest = min(above, key=lambda own: (parts[own].words, -own), default=None)
        mentioned = [] if shortest is None or kept & above.keys() else [above[shortest]]
        for place in (each.right[-1], *rivals, *mentioned):
            own = of(place)
            more = {own} | {h for h in (parts[own].header,) if h is not None}
            if own == part or parts[own].words <= LONGEST_BESIDE:
                joined = kept | more
                if sum(parts[i].words for i in joined) <= LONGEST:
                    kept = joined
    headers = {header for i in kept if (header := parts[i].header) is not None}
    return sorted(kept | headers)


def _excerpt(
    document: Document, parts: Sequence[_Part], arrows: Sequence[Arrow], name: str
) -> Document | None:
    text, moved = "", []
    for part in parts:
        moved.append((part.start, len(text)))
        text += document.text[part.start : part.end]
    try:
        found = read_python(Path(document.source), text)
    except CorpusError:  # a class of which no statement is left
        return None
    starts = [start for start, _ in moved]

    def now(place: int) -> int | None:
        at = bisect_right(starts, place) - 1
        return None if place >= parts[at].end or at < 0 else moved[at][1] + place - moved[at][0]

    same = {(each.kind, now(each.query), now(each.right[-1])) for each in arrows}
    kept = [each for each in found.arrows if (each.kind, each.query, each.right[-1]) in same]
    return replace(found, name=name, arrows=tuple(kept))


def _room(document: Document) -> int:
    """Words that its queries are worth where neither the nearest nor the same word is right.

    Neither the same word before nor the first one.
    """
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    same: dict[int, tuple[int, int]] = {}
    for word in document.words:
        same[word.start] = last.get(word.form, -1), first.setdefault(word.form, word.start)
        last[word.form] = word.start
    doubtful = (
        each.kind
        for each in document.arrows
        if each.others and any(place != each.right[-1] for place in same[each.query])
        if each.kind != "return" or each.others[-1] > each.right[-1]
    )
    return sum(DENSE[kind] for kind in doubtful)
