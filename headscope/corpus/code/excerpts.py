"""Excerpts of a Python file: a function beside what it calls and imports, however far above.

A definition often stands farther from its use than a window reaches. What lies between is left
out, whole statements of a module or a class at a time, so that an excerpt is Python too, and what
its places point back to is what they point to in the file. A statement farther up that has the
same word stays if there is one: else "where the word first stands" is always right.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headscope.corpus.code import read_python
from headscope.corpus.code.links import KINDS
from headscope.corpus.document import Document
from headscope.corpus.gold_links import Arrow, ArrowTable
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
    """True for a function; tables of calls at a module's top are much of one thing."""
    header: int | None = None
    """The part with the line that opens its class."""


def excerpts(document: Document) -> Iterator[Document]:
    """The functions of a file that ask much in few words, each with what it points to.

    Only queries of `DENSE` are asked in them.
    """
    dense_arrows = [arrow for arrow in document.arrows if arrow.kind in DENSE]
    if not dense_arrows:
        return
    parts = _parts(document)
    starts = [part.start for part in parts]
    forms = {word.start: word.form for word in document.words}
    standing: dict[str, list[int]] = {}
    for word in document.words:
        standing.setdefault(word.form, []).append(word.start)
    mentions = {
        arrow.query: [position for position in standing[form] if position < arrow.right[-1]]
        for arrow in dense_arrows
        if (form := forms.get(arrow.query))
    }
    arrows_by_part: dict[int, list[Arrow]] = {}
    for arrow in dense_arrows:
        part = bisect_right(starts, arrow.query) - 1
        if parts[part].asks:
            arrows_by_part.setdefault(part, []).append(arrow)
    for number, (part, arrows) in enumerate(arrows_by_part.items()):
        excerpt_parts = _parts_with_targets(parts, starts, part, arrows, mentions)
        excerpt = _excerpt(
            document, [parts[i] for i in excerpt_parts], arrows, f"{document.name}~{number}"
        )
        if excerpt is not None and len(excerpt.words) <= _word_budget(excerpt):
            yield excerpt


def is_code(document: Document) -> bool:
    """True for a document of code, with names and blocks that point somewhere."""
    return any(arrow.kind in KINDS for arrow in document.arrows)


def holds_code(arrows: ArrowTable) -> bool:
    """True if some of a window's arrows are of code."""
    return bool(np.isin(arrows.kind, KINDS).any())


def without_excerpted(document: Document) -> Document:
    """The document without what its excerpts ask."""
    arrows = tuple(arrow for arrow in document.arrows if arrow.kind not in DENSE)
    return replace(document, arrows=arrows)


def _parts(document: Document) -> list[_Part]:
    """All of a file in order; nothing if statements share a line."""
    text = document.text
    tree = ast.parse(text)
    lines = [0]
    for line in text.split("\n"):
        lines.append(lines[-1] + len(line) + 1)
    words = [word.start for word in document.words]
    file_parts: list[_Part] = []

    def add(first: int, end: int, node: ast.stmt, header: int | None = None) -> None:
        start, stop = lines[first - 1], lines[end]
        if file_parts and start < file_parts[-1].end:  # a second statement of the line
            return
        count = bisect_right(words, stop - 1) - bisect_right(words, start - 1)
        asks = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        file_parts.append(_Part(start, stop, count, asks, header))

    for node in tree.body:
        first, end = _lines(node)
        if isinstance(node, ast.ClassDef) and _lines(node.body[0])[0] > node.lineno:
            header = len(file_parts)
            add(first, _lines(node.body[0])[0] - 1, node)
            for inner in node.body:
                add(*_lines(inner), inner, header if len(file_parts) > header else None)
        else:
            add(first, end, node)
    return file_parts


def _lines(node: ast.stmt) -> tuple[int, int]:
    decorator_lines = [decorator.lineno for decorator in getattr(node, "decorator_list", ())]
    return min([node.lineno, *decorator_lines]), node.end_lineno or node.lineno


def _parts_with_targets(
    parts: Sequence[_Part],
    starts: Sequence[int],
    part: int,
    arrows: Sequence[Arrow],
    mentions: Mapping[int, Sequence[int]],
) -> list[int]:
    """The asking part, and as far as there is room those with what it points to, and a rival.

    And a part above these that has the same word, the shortest.
    """

    def of(position: int) -> int:
        return bisect_right(starts, position) - 1

    excerpt_parts = {part}
    for arrow in arrows:
        rivals = [position for position in arrow.others if position > arrow.right[-1]][:1]
        rivals = rivals or list(arrow.others[-1:])
        above = {of(position): position for position in mentions.get(arrow.query, ())}
        above = {
            candidate: position
            for candidate, position in above.items()
            if 0 <= candidate < of(arrow.right[-1])
        }
        shortest = min(above, key=lambda number: (parts[number].words, -number), default=None)
        mentioned = [] if shortest is None or excerpt_parts & above.keys() else [above[shortest]]
        for position in (arrow.right[-1], *rivals, *mentioned):
            candidate = of(position)
            additions = {candidate} | {h for h in (parts[candidate].header,) if h is not None}
            if candidate == part or parts[candidate].words <= LONGEST_BESIDE:
                joined = excerpt_parts | additions
                if sum(parts[i].words for i in joined) <= LONGEST:
                    excerpt_parts = joined
    headers = {header for i in excerpt_parts if (header := parts[i].header) is not None}
    return sorted(excerpt_parts | headers)


def _excerpt(
    document: Document, parts: Sequence[_Part], arrows: Sequence[Arrow], name: str
) -> Document | None:
    text, moved = "", []
    for part in parts:
        moved.append((part.start, len(text)))
        text += document.text[part.start : part.end]
    try:
        excerpt = read_python(Path(document.source), text)
    except CorpusError:  # a class of which no statement is left
        return None
    starts = [start for start, _ in moved]

    def now(position: int) -> int | None:
        at = bisect_right(starts, position) - 1
        return (
            None if position >= parts[at].end or at < 0 else moved[at][1] + position - moved[at][0]
        )

    same = {(arrow.kind, now(arrow.query), now(arrow.right[-1])) for arrow in arrows}
    excerpt_arrows = [
        arrow for arrow in excerpt.arrows if (arrow.kind, arrow.query, arrow.right[-1]) in same
    ]
    return replace(excerpt, name=name, arrows=tuple(excerpt_arrows))


def _word_budget(document: Document) -> int:
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
        arrow.kind
        for arrow in document.arrows
        if arrow.others and any(position != arrow.right[-1] for position in same[arrow.query])
        if arrow.kind != "return" or arrow.others[-1] > arrow.right[-1]
    )
    return sum(DENSE[kind] for kind in doubtful)
