"""From a closing bracket or quotation mark to the one that it closes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headscope.corpus.gold_links import MAX_CANDIDATES, Arrow, arrow

BRACKET, QUOTE = "bracket-pair", "quote-pair"
BRACKETS = {")": "(", "]": "[", "}": "{", "）": "（", "］": "［", "】": "【"}
QUOTES = {'"': '"', "”": "“", "’": "‘", "»": "«", "」": "「", "』": "『"}
"""Closers with what they close. A straight single quote is left out: most are apostrophes."""
_MARK = re.compile(r"\n[^\S\n]*\n|[" + re.escape("".join([*BRACKETS, *BRACKETS.values()])) + "]")
_QUOTE_MARK = re.compile(r"\n[^\S\n]*\n|[" + "".join({*QUOTES, *QUOTES.values()}) + "]")
_FAR = 64
"""Marks before a query that are looked through for candidates, and open ones for its opener."""


@dataclass(frozen=True)
class Ruled:
    """An arrow, and what the simple rule of its kind picks instead."""

    arrow: Arrow
    same_kind: tuple[int, ...]
    """The first characters of the candidates of the right one's form; the rule picks the last."""

    @property
    def nearest(self) -> int:
        """The first character of the nearest of them."""
        return self.same_kind[-1]


def brackets(text: str) -> Iterator[Ruled]:
    """Each closing bracket of a text with its opener, among all openers before it.

    Brackets match within a paragraph. One that closes nothing, such as that of `a)`, asks nothing,
    nor does one of a face such as `:)`.

    >>> [(each.arrow.query, each.arrow.right, each.nearest) for each in brackets("(a (b) c)")]
    [(5, (3,), 3), (8, (0,), 3)]
    """
    opened: list[int] = []
    seen: list[int] = []
    for match in _MARK.finditer(text):
        mark, position = match.group(), match.start()
        if mark not in BRACKETS and mark not in BRACKETS.values():
            opened.clear()
        elif text[max(0, position - 1) : position] in (":", ";"):
            continue
        elif mark in BRACKETS.values():
            opened.append(position)
            seen.append(position)
        else:
            opener = _close(text, opened, BRACKETS[mark])
            if opener is not None:
                yield from _ruled(BRACKET, text, position, opener, seen)


def quotes(text: str) -> Iterator[Ruled]:
    """Each closing quotation mark with its opener, among all quotation marks before it.

    They match within a paragraph. A straight one closes where one is open, and no blank stands
    before it or none behind it; an apostrophe is none.

    >>> [(each.arrow.query, each.arrow.right) for each in quotes('“‘Go’ is short,” he said. "Oh"')]
    [(4, (1,)), (15, (0,)), (29, (26,))]
    """
    opened: list[int] = []
    seen: list[int] = []
    for match in _QUOTE_MARK.finditer(text):
        mark, position = match.group(), match.start()
        if len(mark) > 1:
            opened.clear()
            continue
        before, after = text[max(0, position - 1) : position], text[position + 1 : position + 2]
        if mark == "’" and (
            after.isalnum() or not any(text[index] == "‘" for index in opened[-_FAR:])
        ):
            continue
        closes = mark in QUOTES and (mark != '"' or _closes(before, after))
        opener = _close(text, opened, QUOTES[mark]) if closes else None
        if opener is not None:
            yield from _ruled(QUOTE, text, position, opener, seen)
        elif mark in QUOTES.values():
            opened.append(position)
        seen.append(position)


def _closes(before: str, after: str) -> bool:
    """True if a straight mark can close: `"word" `, `word," `, not ` "word`."""
    return bool(before) and not before.isspace() and not (before in "([{" and not after.isspace())


def _close(text: str, opened: list[int], opener: str) -> int | None:
    """The last open mark of a form, which is closed with all that opened behind it."""
    del opened[:-_FAR]
    for number in range(len(opened) - 1, -1, -1):
        if text[opened[number]] == opener:
            position = opened[number]
            del opened[number:]
            return position
    return None


def _ruled(kind: str, text: str, query: int, opener: int, seen: list[int]) -> Iterator[Ruled]:
    candidates = seen[-_FAR:]
    same_mark = tuple(candidate for candidate in candidates if text[candidate] == text[opener])
    pointer = arrow(kind, query, [opener], candidates)
    if pointer is not None:
        yield Ruled(pointer, same_mark[-MAX_CANDIDATES:])
