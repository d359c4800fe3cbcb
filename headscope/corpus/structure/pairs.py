"""From a closing bracket or quotation mark to the one that it closes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headscope.corpus.arrows import MOST, Arrow, arrow

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
    alike: tuple[int, ...]
    """The first characters of the candidates of the right one's form; the rule picks the last."""

    @property
    def nearest(self) -> int:
        """The first character of the nearest of them."""
        return self.alike[-1]


def brackets(text: str) -> Iterator[Ruled]:
    """Each closing bracket of a text with its opener, among all openers before it.

    Brackets match within a paragraph. One that closes nothing, such as that of `a)`, asks nothing,
    nor does one of a face such as `:)`.

    >>> [(each.arrow.query, each.arrow.right, each.nearest) for each in brackets("(a (b) c)")]
    [(5, (3,), 3), (8, (0,), 3)]
    """
    opened: list[int] = []
    seen: list[int] = []
    for found in _MARK.finditer(text):
        mark, place = found.group(), found.start()
        if mark not in BRACKETS and mark not in BRACKETS.values():
            opened.clear()
        elif text[max(0, place - 1) : place] in (":", ";"):
            continue
        elif mark in BRACKETS.values():
            opened.append(place)
            seen.append(place)
        else:
            own = _close(text, opened, BRACKETS[mark])
            if own is not None:
                yield from _ruled(BRACKET, text, place, own, seen)


def quotes(text: str) -> Iterator[Ruled]:
    """Each closing quotation mark with its opener, among all quotation marks before it.

    They match within a paragraph. A straight one closes where one is open, and no blank stands
    before it or none behind it; an apostrophe is none.

    >>> [(each.arrow.query, each.arrow.right) for each in quotes('“‘Go’ is short,” he said. "Oh"')]
    [(4, (1,)), (15, (0,)), (29, (26,))]
    """
    opened: list[int] = []
    seen: list[int] = []
    for found in _QUOTE_MARK.finditer(text):
        mark, place = found.group(), found.start()
        if len(mark) > 1:
            opened.clear()
            continue
        before, after = text[max(0, place - 1) : place], text[place + 1 : place + 2]
        if mark == "’" and (
            after.isalnum() or not any(text[each] == "‘" for each in opened[-_FAR:])
        ):
            continue
        closes = mark in QUOTES and (mark != '"' or _closes(before, after))
        own = _close(text, opened, QUOTES[mark]) if closes else None
        if own is not None:
            yield from _ruled(QUOTE, text, place, own, seen)
        elif mark in QUOTES.values():
            opened.append(place)
        seen.append(place)


def _closes(before: str, after: str) -> bool:
    """Whether a straight mark can close: `"word" `, `word," `, not ` "word`."""
    return bool(before) and not before.isspace() and not (before in "([{" and not after.isspace())


def _close(text: str, opened: list[int], opener: str) -> int | None:
    """The last open mark of a form, which is closed with all that opened behind it."""
    del opened[:-_FAR]
    for number in range(len(opened) - 1, -1, -1):
        if text[opened[number]] == opener:
            own = opened[number]
            del opened[number:]
            return own
    return None


def _ruled(kind: str, text: str, query: int, own: int, seen: list[int]) -> Iterator[Ruled]:
    candidates = seen[-_FAR:]
    alike = tuple(each for each in candidates if text[each] == text[own])
    found = arrow(kind, query, [own], candidates)
    if found is not None:
        yield Ruled(found, alike[-MOST:])
