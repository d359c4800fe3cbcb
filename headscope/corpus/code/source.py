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
    """Kind of token, as in Python's `tokenize`."""
    text: str
    start: int
    """First character in the file."""


Node = ast.expr | ast.stmt | ast.arg | ast.alias | ast.keyword
"""A node that states its place."""


class SourceFile:
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

    def start(self, node: Node) -> int:
        """The first character of a node."""
        return self._character(node.lineno, node.col_offset)

    def end(self, node: Node) -> int:
        """The character after a node."""
        return self._character(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _character(self, line: int, column: int) -> int:
        """The character at a line, counted from 1, and a column in bytes, as the tree counts."""
        line_text = self._lines[line - 1]
        if not line_text.isascii():
            before = line_text.encode()[:column]
            column = len(before.decode(errors="ignore"))
        return self._starts[line - 1] + column

    @cached_property
    def tokens(self) -> list[Token]:
        """Tokens in the order of the text; what stands within f-strings is left out."""
        return list(self._tokens())

    def _tokens(self) -> Iterator[Token]:
        # an f-string counts as one token, whatever Python's version makes of it
        opens = getattr(tokenize, "FSTRING_START", -1)
        closes = getattr(tokenize, "FSTRING_END", -1)
        left_out = (closes, tokenize.COMMENT, tokenize.NL)
        depth = 0
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == opens:
                depth += 1
            if token.type == closes:
                depth -= 1
            if depth or token.type in left_out:
                continue
            line, column = token.start
            start = self._starts[line - 1] + column
            yield Token(token.type, token.string, start)

    @cached_property
    def _names(self) -> tuple[list[int], list[str]]:
        name_tokens = [token for token in self.tokens if token.kind == tokenize.NAME]
        return [token.start for token in name_tokens], [token.text for token in name_tokens]

    def after(self, start: int, words: Iterable[str]) -> int | None:
        """The first character of the next name at or behind a character, skipping these words."""
        skipped = set(words)
        starts, texts = self._names
        for index in range(bisect_left(starts, start), len(starts)):
            if texts[index] not in skipped:
                return None if keyword.iskeyword(texts[index]) else starts[index]
        return None
