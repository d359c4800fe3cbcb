"""Python files as documents: every word and mark is a word, and its grammar is the annotation."""

from __future__ import annotations

import re
import tokenize
from bisect import bisect_right
from pathlib import Path

from headscope.corpus.code.links import KINDS, arrows_of
from headscope.corpus.code.source import SourceFile
from headscope.corpus.document import Document, Word
from headscope.errors import CorpusError, first_line

SUFFIX = ".py"
LONGEST = 200_000
"""Characters of a file: a longer one is a table that a program wrote, and is not read."""
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
        arrows = arrows_of(source)
        ends = [token.start for token in source.tokens if token.kind == tokenize.NEWLINE]
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        line = getattr(error, "lineno", None) or 1
        raise CorpusError(f"{path}:{line}: no Python: {first_line(error):.100}") from error
    words = tuple(
        Word(match.group(), match.start(), match.end(), bisect_right(ends, match.start() - 1))
        for match in _WORD.finditer(text)
    )
    name = f"{path.parent.name}.{path.stem}" if path.parent.name else path.stem
    return Document(name, text, words, source=str(path), arrows=tuple(arrows))
