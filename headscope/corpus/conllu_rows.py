"""The rows of a CoNLL-U sentence: columns, checked, and a tree over the words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headscope.errors import CorpusError

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
_ID = re.compile(r"([0-9]{1,9})(?:([-.])([0-9]{1,9}))?")
_HEAD = re.compile(r"[0-9]{1,9}|_")


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
    space_after: str
    new_paragraph: bool
    """True if a paragraph starts here, within a sentence or not."""
    entity: str
    """The value of `Entity=`, empty without one."""


def parse_rows(path: Path, lines: list[tuple[int, str]]) -> list[Row]:
    """The rows of a sentence, given with their line numbers.

    Raises:
        CorpusError: with file and line, for a row that is not CoNLL-U, and for rows that do not
            make a sentence: word ids count up from 1, ranges cover words that follow, no form is
            empty, and heads exist.
    """
    rows = [_row(f"{path}:{number}", number, line) for number, line in lines]
    words = [row for row in rows if isinstance(row.id, int)]
    if not words:
        raise CorpusError(f"{path}:{rows[0].line}: a sentence without a word")
    _check_words(path, words)
    _check_ranges(path, rows, len(words))
    return rows


def _row(location: str, number: int, line: str) -> Row:
    cells = line.strip(" ").split("\t")
    if len(cells) != len(COLUMNS):
        raise CorpusError(
            f"{location}: {len(cells)} columns, but CoNLL-U has {len(COLUMNS)}, separated by tabs"
        )
    name, form, lemma, upos, _, feats, head, deprel, _, attributes = cells
    identity = _ID.fullmatch(name)
    if identity is None:
        raise CorpusError(f"{location}: not CoNLL-U: {name!r:.40} is not a valid ID")
    if _HEAD.fullmatch(head) is None:
        raise CorpusError(f"{location}: not CoNLL-U: {head!r:.40} is not a valid head")
    if not form.strip():
        raise CorpusError(f"{location}: the form of word {name} is empty")
    first, mark, last = identity.groups()
    misc = dict(_pair(part) for part in attributes.split("|"))
    after = "" if misc.get("SpaceAfter") == "No" else " "
    return Row(
        line=number,
        id=(int(first), mark, int(last)) if mark else int(first),
        form=form,
        lemma="" if lemma == "_" != form else lemma,
        upos=upos,
        feats=feats if feats != "_" else "",
        head=0 if head == "_" else int(head),
        deprel=deprel,
        surface=_spaces(location, "SpacesInToken", misc, form) or form,
        space_before=_spaces(location, "SpacesBefore", misc),
        space_after=_spaces(location, "SpacesAfter", misc) or after,
        new_paragraph=misc.get("NewPar") == "Yes",
        entity=misc.get("Entity", ""),
    )


# https://ufal.mff.cuni.cz/udpipe/1/users-manual; the last is Stanza's
_ESCAPES = {
    r"\s": " ", r"\t": "\t", r"\r": "\r", r"\n": "\n", r"\p": "|", r"\\": "\\", r"\u00A0": "\xa0",
}  # fmt: skip


def _unescaped(value: str) -> str:
    text = re.sub(r"\\(?:u00A0|.)", lambda escape: _ESCAPES.get(escape[0], escape[0]), value)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _spaces(location: str, key: str, misc: Mapping[str, str], form: str = "") -> str:
    """The value of an attribute: spaces, and for `SpacesInToken` the form among them."""
    text = _unescaped(misc.get(key, ""))
    if text and "".join(text.split()) != "".join(form.split()):
        raise CorpusError(
            f"{location}: cannot read {key}={misc[key]:.60}; expected spaces like \\s"
        )
    return text


def _pair(part: str) -> tuple[str, str]:
    key, _, value = part.partition("=")
    value = value.strip(" ")  # other spaces may be the value of SpacesAfter
    return key.strip(), "" if value == "_" else value


def _check_words(path: Path, words: list[Row]) -> None:
    for expected, row in enumerate(words, start=1):
        if row.id != expected:
            raise CorpusError(f"{path}:{row.line}: word id {row.id}, but {expected} comes next")
        if row.head > len(words):
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
            covered = last
