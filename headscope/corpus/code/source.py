"""A Python file as its own tools see it: its tree, its tokens, and where both stand in the text."""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
import warnings
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Token:
    """A token outside strings, or the end of a line or a block."""

    kind: int
    """As in Python's `tokenize`."""
    text: str
    start: int
    """Its first character in the file."""


class Source:
    """A file that parses.

    Args:
        text: the file, with line feeds alone.

    Raises:
        SyntaxError: it does not parse, with the line.
        ValueError: likewise, for what Python finds before it reads.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        with warnings.catch_warnings():  # about odd escapes in the file, which are not ours
            warnings.simplefilter("ignore")
            self.tree = ast.parse(text)
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def place(self, line: int, column: int) -> int:
        """The character at a line, counted from 1, and a column in bytes, as the tree counts."""
        own = self._lines[line - 1]
        if not own.isascii():
            column = len(own.encode()[:column].decode(errors="ignore"))
        return self._starts[line - 1] + column

    @cached_property
    def tokens(self) -> list[Token]:
        """In the order of the text; what stands within f-strings is left out."""
        return list(self._tokens())

    def _tokens(self) -> Iterator[Token]:
        within = 0
        opens, closes = (getattr(tokenize, f"FSTRING_{end}", -1) for end in ("START", "END"))
        for each in tokenize.generate_tokens(io.StringIO(self.text).readline):
            within += (each.type == opens) - (each.type == closes)
            if not within and each.type not in (closes, tokenize.COMMENT, tokenize.NL):
                start = self._starts[each.start[0] - 1] + each.start[1]
                yield Token(each.type, each.string, start)

    @cached_property
    def _names(self) -> tuple[list[int], list[str]]:
        named = [each for each in self.tokens if each.kind == tokenize.NAME]
        return [each.start for each in named], [each.text for each in named]

    def after(self, start: int, words: Iterable[str]) -> int | None:
        """Where the next name begins at or behind a character, skipping these words."""
        skipped = set(words)
        starts, texts = self._names
        for place in range(bisect_left(starts, start), len(starts)):
            if texts[place] not in skipped:
                return None if keyword.iskeyword(texts[place]) else starts[place]
        return None
