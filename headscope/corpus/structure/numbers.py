"""From a date, a time, a sum or another number to the one of its kind before it.

What is a number, and of which kind, is told from the characters alone:

- what is longest is taken, and of what is as long the first of `FORMS` that matches;
- a number within a word (`B12`, `12km`), joined to one by a hyphen (`10-year`) or within a chain
  (`1.2.3`, `3/4`) is none, nor is one that goes on in another line;
- the number that marks a list's item (`2. tea`) is none, nor is a reference mark (`[7]`), which the
  bracket before it tells;
- `5.20` without a sign is a decimal, and four digits by themselves are a year from 1500 to 2099 (so
  `2020 houses` has a year), from 1000 on where `in`, `since`, `until` or `by` stands before them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headscope.corpus.gold_links import MAX_CANDIDATES, Arrow
from headscope.corpus.structure.pairs import Ruled

NUMBER = "number-kind"
_GAP = "[ \u00a0\u202f]"
_INTEGER = r"(?:\d{1,3}(?:,\d{3})+|\d{1,15})"
_PLAIN = rf"{_INTEGER}(?:\.\d{{1,15}})?"
_SIGN = "[$€£¥]"
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\b\.?)"
)
_DAY = r"(?:3[01]|[12]\d|0?[1-9])"
_NUMBERED = r"(?:1[0-2]|0?[1-9])"
_YEAR = r"(?:1[5-9]|20)\d\d"
_NO_MORE = r"(?!\w)(?![.,:/'’-]\w)(?!-\d)"
FORMS: tuple[tuple[str, str], ...] = (
    ("date", rf"{_DAY}(?:st|nd|rd|th)?{_GAP}{_MONTH}(?:,?{_GAP}{_YEAR})?"),
    ("date", rf"{_MONTH}{_GAP}{_DAY}(?:st|nd|rd|th)?(?:,?{_GAP}{_YEAR})?"),
    ("date", rf"{_MONTH}{_GAP}{_YEAR}"),
    ("date", r"\d{4}-(?:1[0-2]|0[1-9])-(?:3[01]|[12]\d|0[1-9])"),
    ("date", rf"{_DAY}([./]){_NUMBERED}\1\d{{2}}(?:\d{{2}})?"),
    ("date", rf"{_NUMBERED}/{_DAY}/\d{{2}}(?:\d{{2}})?"),
    ("time", rf"(?:2[0-3]|[01]?\d):[0-5]\d(?::[0-5]\d)?(?:{_GAP}?[AaPp][Mm]\b)?"),
    ("time", rf"(?:1[0-2]|0?[1-9]){_GAP}?[AaPp][Mm]\b"),
    ("money", rf"(?:US|NZ|HK|[AC])?{_SIGN}{_GAP}?{_PLAIN}"),
    ("money", rf"{_PLAIN}{_GAP}?{_SIGN}"),
    ("percentage", rf"{_PLAIN}{_GAP}?(?:%|per{_GAP}?cent\b)"),
    ("ordinal", r"\d{1,15}(?:st|nd|rd|th)"),
    ("decimal", rf"{_INTEGER}\.\d{{1,15}}"),
    ("year", _YEAR),
    ("year", r"(?<=\b[Ii]n )[1-9]\d{3}|(?<=\b[Bb]y )1\d{3}|(?<=\b(?:[Ss]ince|[Uu]ntil) )1\d{3}"),
    ("count", _INTEGER),
)
"""The forms of numbers by kind."""
_FORMS = tuple((kind, re.compile(f"(?:{form}){_NO_MORE}")) for kind, form in FORMS)
_START = re.compile(
    r"(?<![\w$€£¥#@])(?<!\w[-.,:/'’])(?<![$€£¥] )(?=\d|[$€£¥]|[A-Z][A-Za-z$€£¥])", re.ASCII
)
_MARKER = re.compile(r"^[^\S\n]*\d{1,3}[.)](?=\s)", re.MULTILINE)
_REFERENCE = re.compile(r"(?<=\[)\d{1,3}\]")
_WIDE = MAX_CANDIDATES // 2
"""Words of other numbers that are kept on either side of the right one."""


class Number(NamedTuple):
    """A number-like expression at `text[start:end]`."""

    start: int
    end: int
    kind: str


def numbers(text: str) -> list[Number]:
    """The number-like expressions of a text, in order; no two overlap.

    >>> text = "On 12 May 2020 vitamin B12 cost $5.20."
    >>> [(text[each.start : each.end], each.kind) for each in numbers(text)]
    [('12 May 2020', 'date'), ('$5.20', 'money')]
    """
    markers = {position for marker in _MARKER.finditer(text) for position in range(*marker.span())}
    candidates: list[tuple[int, int, int, str]] = []
    for match in _START.finditer(text):
        start = match.start()
        if start in markers or _REFERENCE.match(text, start):
            continue
        for rank, (kind, form) in enumerate(_FORMS):
            match_of_form = form.match(text, start)
            if match_of_form is not None:
                candidates.append((start - match_of_form.end(), start, rank, kind))
    disjoint: list[Number] = []
    for minus, start, _, kind in sorted(candidates):
        end = start - minus
        at = bisect_left(disjoint, (start, 0, ""))
        free_left = not at or disjoint[at - 1].end <= start
        if free_left and (at == len(disjoint) or end <= disjoint[at].start):
            disjoint.insert(at, Number(start, end, kind))
    return disjoint


def number_kinds(text: str, words: Sequence[int], ends: Sequence[int]) -> Iterator[Ruled]:
    """Each number's last word with the words of the nearest number of its kind before it.

    Candidates are the words of numbers of other kinds, the nearest ones on either side of the right
    one. `same_kind` are the last words of the right number and of all behind it, of which the
    simple rule picks the nearest, whatever its kind. A number that is not whole words, such as `10`
    of the word `10er`, is left out.

    Args:
        text: of a document.
        words: the first characters of its words, in order.
        ends: behind the last characters of those words.
    """
    last_of: dict[str, int] = {}
    known: list[tuple[str, list[int]]] = []
    for number in numbers(text):
        low, high = bisect_left(words, number.start), bisect_left(words, number.end)
        number_words = list(words[low:high])
        if not number_words or number_words[0] != number.start or ends[high - 1] != number.end:
            continue
        if number.kind in last_of:
            at = last_of[number.kind]
            farther = _others(known[max(0, at - _WIDE) : at], number.kind)[-_WIDE:]
            nearer = _others(known[at + 1 : at + 1 + _WIDE], number.kind)[:_WIDE]
            pointed = Arrow(NUMBER, number_words[-1], tuple(known[at][1]), (*farther, *nearer))
            yield Ruled(
                pointed, tuple(positions[-1] for _, positions in known[at:][-MAX_CANDIDATES:])
            )
        last_of[number.kind] = len(known)
        known.append((number.kind, number_words))


def _others(known: list[tuple[str, list[int]]], kind: str) -> list[int]:
    return [word for its, words in known if its != kind for word in words]
