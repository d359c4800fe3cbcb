"""The rows of a CoNLL-U sentence: ten columns each, checked, and a tree over the words.

Ids and heads are read by the `conllu` library. Its own splitting of lines is not used: it takes
two blanks in a form for a new column and drops empty columns at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from conllu.exceptions import ParseException
from conllu.parser import parse_id_value, parse_int_value

from headscope.errors import CorpusError

COLUMNS = 10
MOST_PARTS = 20
"""Words of one multi-word token. Longer ranges are no language, and all their words would share
the token's sub-tokens: the word pairs of a window grow with the square of its words."""
_MOST_DIGITS = 9  # of an id or head; Python refuses to convert thousands of digits
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a sentence. `id` is a word's number, `(1, "-", 2)` or `(8, ".", 1)`."""

    line: int
    id: int | tuple[int, str, int]
    form: str
    lemma: str
    upos: str
    feats: str
    head: int
    """0 for a root or without annotation."""
    deprel: str
    space_after: bool
    entity: str
    """The value of `Entity=`, empty without one."""


def parse_rows(path: Path, lines: list[tuple[int, str]]) -> list[Row]:
    """The rows of a sentence, given with their line numbers.

    Raises:
        CorpusError: with file and line, for a row that is not CoNLL-U, and for rows that do not
            make a sentence: word ids count up from 1, ranges cover words that follow, no form is
            empty, heads exist, and no word governs itself.
    """
    rows = [_row(f"{path}:{number}", number, line) for number, line in lines]
    words = [row for row in rows if isinstance(row.id, int)]
    if not words:
        raise CorpusError(f"{path}:{rows[0].line}: a sentence without a word")
    _check_words(path, words)
    _check_ranges(path, rows, len(words))
    _check_tree(path, words)
    return rows


def _row(path: str, number: int, line: str) -> Row:
    columns = line.strip(" ").split("\t")
    if len(columns) != COLUMNS:
        raise CorpusError(
            f"{path}: {len(columns)} columns, but CoNLL-U has {COLUMNS}, separated by tabs"
        )
    identity = _number(path, "ID", columns[0], parse_id_value)
    if identity is None:
        raise CorpusError(f"{path}: not CoNLL-U: {columns[0]!r} is not a valid ID")
    form, lemma = columns[1], columns[2]
    if not form.strip():
        raise CorpusError(f"{path}: the form of word {columns[0]} is empty")
    misc = dict(_pair(part) for part in columns[9].split("|"))
    return Row(
        line=number,
        id=identity,
        form=form,
        lemma="" if lemma == "_" != form else lemma,
        upos=columns[3],
        feats=columns[5] if columns[5] != "_" else "",
        head=_number(path, "head", columns[6], parse_int_value) or 0,
        deprel=columns[7],
        space_after=misc.get("SpaceAfter") != "No",
        entity=misc.get("Entity", ""),
    )


def _number(path: str, what: str, value: str, parse: Callable[[str], _Value]) -> _Value:
    try:
        if max(map(len, value.replace("-", ".").split("."))) > _MOST_DIGITS:
            raise ParseException("too long")
        return parse(value)
    except ParseException as error:
        raise CorpusError(f"{path}: not CoNLL-U: {value!r:.40} is not a valid {what}") from error


def _pair(part: str) -> tuple[str, str]:
    key, _, value = part.partition("=")
    value = value.strip()
    return key.strip(), "" if value == "_" else value


def _check_words(path: Path, words: list[Row]) -> None:
    for expected, row in enumerate(words, start=1):
        if row.id != expected:
            raise CorpusError(f"{path}:{row.line}: word id {row.id}, but {expected} comes next")
        if not 0 <= row.head <= len(words):
            raise CorpusError(
                f"{path}:{row.line}: head {row.head} is out of range; this sentence has words "
                f"1 to {len(words)}, and 0 is the root"
            )


def _check_ranges(path: Path, rows: list[Row], words: int) -> None:
    """A range stands right before its first word, and ranges do not overlap."""
    covered, following = 0, 1
    for row in rows:
        if isinstance(row.id, int):
            following = row.id + 1
        elif row.id[1] == "-":
            first, _, last = row.id
            if first != following or first <= covered or last > words:
                raise CorpusError(
                    f"{path}:{row.line}: range {first}-{last} does not fit; it must start with the "
                    f"next word, {following}, overlap no other and end by word {words}"
                )
            if last - first >= MOST_PARTS:
                raise CorpusError(
                    f"{path}:{row.line}: range {first}-{last} makes {last - first + 1} words of "
                    f"one token; {MOST_PARTS} at most can be read"
                )
            covered = last


def _check_tree(path: Path, words: list[Row]) -> None:
    """Every word leads to the root. Each word is passed once, however deep the tree is."""
    passed_by = [0] * (len(words) + 1)
    passed_by[0] = -1  # the root
    for start in range(1, len(words) + 1):
        above = start
        while not passed_by[above]:
            passed_by[above] = start
            above = words[above - 1].head
        if passed_by[above] == start:  # the walk has met itself
            row = words[above - 1]
            raise CorpusError(
                f"{path}:{row.line}: a cycle: word {row.id} ({row.form!r:.40}) governs itself; "
                "every word must lead to the root"
            )
