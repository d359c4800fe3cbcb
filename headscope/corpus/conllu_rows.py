"""The rows of a CoNLL-U sentence: columns, checked, and a tree over the words.

Ids and heads are read by the `conllu` library. Its own splitting of lines is not used: it takes
two blanks in a form for a new column and drops empty columns at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from conllu.exceptions import ParseException
from conllu.parser import parse_id_value, parse_int_value

from headscope.errors import CorpusError

COLUMNS: tuple[str, ...] = (
    "ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC",
)  # fmt: skip
"""Columns of a file without `global.columns`."""
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
    surface: str
    """The form with the spaces that the text has inside it."""
    space_before: str
    """Empty without `SpacesBefore`."""
    space_after: str
    new_paragraph: bool
    """Whether a paragraph starts here, within a sentence or not."""
    entity: str
    """The value of `Entity=`, empty without one."""


def read_columns(location: str, value: str) -> tuple[str, ...]:
    """The columns that `global.columns` names; those that headscope does not read are allowed.

    Raises:
        CorpusError: the first column is not ID, no column is FORM, or one is there twice.

    >>> read_columns("a.conllu:1", "ID FORM HEAD PARSEME:MWE")
    ('ID', 'FORM', 'HEAD', 'PARSEME:MWE')
    """
    columns = tuple(value.split())
    if columns[:1] != ("ID",) or "FORM" not in columns or len({*columns}) < len(columns):
        raise CorpusError(
            f"{location}: cannot read global.columns = {value:.100}; expected ID, then FORM and "
            f"further columns once each, such as {' '.join(COLUMNS)}"
        )
    return columns


def parse_rows(
    path: Path, lines: list[tuple[int, str]], columns: tuple[str, ...] = COLUMNS
) -> list[Row]:
    """The rows of a sentence, given with their line numbers.

    Raises:
        CorpusError: with file and line, for a row that is not CoNLL-U, and for rows that do not
            make a sentence: word ids count up from 1, ranges cover words that follow, no form is
            empty, heads exist, and no word governs itself.
    """
    rows = [_row(f"{path}:{number}", number, line, columns) for number, line in lines]
    words = [row for row in rows if isinstance(row.id, int)]
    if not words:
        raise CorpusError(f"{path}:{rows[0].line}: a sentence without a word")
    _check_words(path, words)
    _check_ranges(path, rows, len(words))
    _check_tree(path, words)
    return rows


def _row(location: str, number: int, line: str, columns: tuple[str, ...]) -> Row:
    values = line.strip(" ").split("\t")
    if len(values) != len(columns):
        source = "CoNLL-U has" if columns == COLUMNS else "global.columns names"
        raise CorpusError(
            f"{location}: {len(values)} columns, but {source} {len(columns)}, separated by tabs"
        )
    cells = dict.fromkeys(COLUMNS, "_") | dict(zip(columns, values, strict=True))
    identity = _number(location, "ID", cells["ID"], parse_id_value)
    if identity is None:
        raise CorpusError(f"{location}: not CoNLL-U: {cells['ID']!r} is not a valid ID")
    form, lemma = cells["FORM"], cells["LEMMA"]
    if not form.strip():
        raise CorpusError(f"{location}: the form of word {cells['ID']} is empty")
    misc = dict(_pair(part) for part in cells["MISC"].split("|"))
    space_after = "" if misc.get("SpaceAfter", "").lower() == "no" else " "
    return Row(
        line=number,
        id=identity,
        form=form,
        lemma="" if lemma == "_" != form else lemma,
        upos=cells["UPOS"],
        feats=cells["FEATS"] if cells["FEATS"] != "_" else "",
        head=_number(location, "head", cells["HEAD"], parse_int_value) or 0,
        deprel=cells["DEPREL"],
        surface=_surface(location, form, misc),
        space_before=_space(location, "SpacesBefore", misc),
        space_after=_space(location, "SpacesAfter", misc) or space_after,
        new_paragraph=misc.get("NewPar", "").lower() == "yes",
        entity=misc.get("Entity", ""),
    )


# https://ufal.mff.cuni.cz/udpipe/1/users-manual; the last is Stanza's
_ESCAPES = {
    r"\s": " ", r"\t": "\t", r"\r": "\r", r"\n": "\n", r"\p": "|", r"\\": "\\", r"\u00A0": "\xa0",
}  # fmt: skip


def _unescaped(value: str) -> str:
    text = re.sub(r"\\(?:u00A0|.)", lambda escape: _ESCAPES.get(escape[0], escape[0]), value)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _space(location: str, key: str, misc: Mapping[str, str]) -> str:
    space = _unescaped(misc.get(key, ""))
    if space.strip():
        raise CorpusError(
            f"{location}: cannot read {key}={misc[key]:.60}; expected spaces such as \\s or \\n"
        )
    return space


def _surface(location: str, form: str, misc: Mapping[str, str]) -> str:
    surface = _unescaped(misc.get("SpacesInToken", "")) or form
    if "".join(surface.split()) != "".join(form.split()):
        raise CorpusError(
            f"{location}: cannot read SpacesInToken={misc['SpacesInToken']:.60}; expected the form "
            f"{form!r:.40} with spaces in it"
        )
    return surface


def _number(location: str, what: str, value: str, parse: Callable[[str], _Value]) -> _Value:
    try:
        if max(map(len, value.replace("-", ".").split("."))) > _MOST_DIGITS:
            raise ParseException("too long")
        return parse(value)
    except ParseException as error:
        raise CorpusError(
            f"{location}: not CoNLL-U: {value!r:.40} is not a valid {what}"
        ) from error


def _pair(part: str) -> tuple[str, str]:
    key, _, value = part.partition("=")
    value = value.strip(" ")  # other spaces may be the value of SpacesAfter
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
