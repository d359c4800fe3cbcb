"""Python files as documents: every word and mark is a word, and its grammar is the annotation.

Gold links go from places to what they point back to, by grammar alone: no guesses. Names are
resolved by Python's rules of scope. A name that is bound in several places points to the nearest of
them above it in the text, which need not be the one that has run last.
"""

from __future__ import annotations

import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from headscope.corpus.code.scopes import USE, VARIABLE, Occurrence, Variable, names_of
from headscope.corpus.code.source import SourceFile
from headscope.corpus.document import Document, Word
from headscope.corpus.gold_links import Arrow, arrow
from headscope.errors import CorpusError, first_line

KINDS = ("definition", "bracket", "block")
OPENERS = {")": "(", "]": "[", "}": "{"}
_FAR = 64
"""Brackets and blocks before a query that are looked through for candidates."""
LONGEST = 200_000
"""Characters of a file: a longer one is a table that a program wrote, and is not read."""
_NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError)
"""What the parser and the tokenizer raise for text that is not Python, or too deeply nested."""
_WORD = re.compile(r"\w+|[^\w\s]")


def is_code(document: Document) -> bool:
    """True for a document of code, with names and blocks that point somewhere."""
    return any(arrow.kind in KINDS for arrow in document.arrows)


def read_python(path: Path, text: str) -> Document:
    """A file as a document: its words, a line of code as a sentence, and its arrows.

    Raises:
        CorpusError: with the line, where it does not parse; or it is too long.
    """
    if len(text) > LONGEST:
        raise CorpusError(f"{path}: {len(text):,} characters of code; {LONGEST:,} are read at most")
    try:
        source = SourceFile(text)
        links = [*_of_names(names_of(source)), *_of_brackets(source), *_of_blocks(source)]
        line_ends = [token.start for token in source.tokens if token.kind == tokenize.NEWLINE]
    except _NO_PYTHON as error:
        line = getattr(error, "lineno", None) or 1
        raise CorpusError(f"{path}:{line}: no Python: {first_line(error):.100}") from error
    words = []
    for match in _WORD.finditer(text):
        first, end = match.span()
        line_number = bisect_right(line_ends, first - 1)
        words.append(Word(match.group(), first, end, line_number))
    folder = path.parent.name
    name = f"{folder}.{path.stem}" if folder else path.stem
    arrows = tuple(link for link in links if link is not None)
    return Document(name, text, tuple(words), source=str(path), arrows=arrows)


def _of_names(occurrences: list[Occurrence]) -> Iterator[Arrow | None]:
    """Arrows from uses of variables and parameters to what binds them.

    The candidates are the last bindings of the variables and parameters of the same scope.
    """
    events = [(occurrence.start, False, occurrence) for occurrence in occurrences]
    events += [
        (occurrence.bound_from, True, occurrence)
        for occurrence in occurrences
        if occurrence.role != USE
    ]
    bound: dict[int, dict[Variable, int]] = {}
    """Last binding of each variable and parameter of a scope, by scope."""
    binder: dict[Variable, Occurrence] = {}
    for _, binds, occurrence in sorted(events, key=lambda event: event[:2]):
        variable = occurrence.variable
        if variable is None:
            continue
        if binds:
            binder[variable] = occurrence
            if occurrence.role == VARIABLE:
                bound.setdefault(variable[0], {})[variable] = occurrence.start
        elif occurrence.role == USE and variable in binder:
            origin = binder[variable]
            if origin.role == VARIABLE:
                candidates = bound[variable[0]].values()
                yield arrow("definition", occurrence.start, [origin.start], candidates)


def _of_brackets(source: SourceFile) -> Iterator[Arrow | None]:
    """Arrows from a closing bracket to the one that it closes, among all that open before it."""
    openers: list[int] = []
    waiting: list[int] = []
    for token in source.tokens:
        if token.kind != tokenize.OP:
            continue
        if token.text in OPENERS.values():
            openers.append(token.start)
            waiting.append(token.start)
        elif token.text in OPENERS and waiting:
            yield arrow("bracket", token.start, [waiting.pop()], openers[-_FAR:])


def _of_blocks(source: SourceFile) -> Iterator[Arrow | None]:
    """Arrows from the first word of a line to that of the line that opened its block."""
    opened: list[int] = []
    waiting: list[int] = []
    line = None
    """Start of the current line."""
    starts = True
    for token in source.tokens:
        if token.kind == tokenize.INDENT:
            if line is not None:
                opened.append(line)
                waiting.append(line)
        elif token.kind == tokenize.DEDENT:
            if waiting:
                waiting.pop()
        elif token.kind == tokenize.NEWLINE:
            starts = True
        elif starts and token.kind != tokenize.ENDMARKER:
            starts, line = False, token.start
            if waiting and token.kind == tokenize.NAME:
                yield arrow("block", line, waiting[-1:], opened[-_FAR:])
