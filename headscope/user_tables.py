"""CSV, JSON and JSON lines of users, read by one set of rules for all commands.

A CSV file follows RFC 4180: commas, fields with a comma in quotation marks, and quotation marks
within them doubled. What could be read in two ways is refused, with the number of its row. Blanks
before a quoted field mean nothing; those of a field without quotation marks are part of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.errors import (
    HeadscopeError,
    InvalidRow,
    check_rows,
    first_line,
    reported_as,
)
from headscope.paths import given_file

if TYPE_CHECKING:
    import pandas as pd

# possessive: an open quotation mark must not match up to an earlier one
_QUOTED = re.compile(r'[ \t]*"([^"]*+(?:""[^"]*+)*+)"[ \t]*')
_OPENING = re.compile(r'[ \t]*"')
_PLAIN = re.compile(r"[^,\r\n]*")
_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_FIELD_END = re.compile(r",|\r\n|\r|\n|\Z")
_ESCAPED = re.compile(r'\\"(?!")')
"""A backslash before one quotation mark, which ends the field or was meant to be in it."""
_DOUBLE = "write two quotation marks for one within a field, and put the field in quotation marks"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a character as JSON may write it."""
_OTHER_SEPARATORS = (";", "\t", "|")


@dataclass(frozen=True)
class UserTable:
    """The rows of a file, and what is wrong with those that cannot be read."""

    name: str
    """The file, for messages."""
    columns: Sequence[str]
    """Names in the header of a CSV file; none of JSON lines."""
    rows: Mapping[int, Any]
    """Each row by its number in the file, which counts the header and empty rows."""
    invalid: Sequence[InvalidRow]

    def check_columns(self, kind: type[HeadscopeError], required: Sequence[str]) -> None:
        """Check that the header has these names; a table without a header passes.

        Args:
            kind: the error.
            required: names that a header must have.

        Raises:
            HeadscopeError: names are missing; the message has them and those of the header.
        """
        missing = [name for name in required if name not in self.columns]
        if self.columns and missing:
            raise kind(
                f"{self.name}: the header lacks {', '.join(missing)}; it has "
                f"{', '.join(self.columns):.400}, and must have {', '.join(required)}"
            )

    def check(self, kind: type[HeadscopeError], invalid: Sequence[InvalidRow] = ()) -> None:
        """Check that there are rows, and no invalid ones.

        Args:
            kind: the error.
            invalid: rows that the caller cannot use, beside those that cannot be read.

        Raises:
            HeadscopeError: there are no rows, or invalid ones; the message lists them.
        """
        every = sorted([*self.invalid, *invalid], key=lambda row: row.number)
        check_rows(kind, self.name, every, of=len(self.rows) + len(self.invalid))


def read_csv(path: str | Path, kind: type[HeadscopeError], would_do: str) -> UserTable:
    """The rows of a CSV file that a user names, as text; see `csv_table`.

    Args:
        path: the file.
        kind: the error of a file that is not a table.
        would_do: what the user should give, for the message if there is no file.

    Raises:
        HeadscopeError: there is no such file, or it is not a table.
    """
    return csv_table(given_file(path, would_do), str(path), kind)


def csv_table(raw: bytes, name: str, kind: type[HeadscopeError]) -> UserTable:
    r"""The rows of a CSV file, each a mapping from the columns to text.

    Raises:
        HeadscopeError: it is not UTF-8, or its header cannot be read or names a column twice.

    >>> table = csv_table(b'head,label\nL0H0, "a, b"\nL0H1,a,b\n', "a.csv", HeadscopeError)
    >>> table.rows, table.invalid[0].number
    ({2: {'head': 'L0H0', 'label': 'a, b'}}, 3)
    """
    text = _decoded(raw, name, kind)
    # rows are collected with their faults, which are reported together
    columns: tuple[str, ...] = ()
    rows: dict[int, Mapping[str, str]] = {}
    invalid: list[InvalidRow] = []
    for number, row in enumerate(_records(text), 1):
        if isinstance(row, str):
            invalid.append(InvalidRow(number, row))
        elif len(row) == 1 and not row[0].strip():
            continue
        elif not columns:
            columns = tuple(cell.strip() for cell in row)
            _check_header(columns, name, kind)
        elif len(row) != len(columns):
            reason = f"{len(row)} fields, and the header has {len(columns)}"
            if len(row) > len(columns):
                reason += "; put a field with a comma in quotation marks"
            invalid.append(InvalidRow(number, reason))
        elif tuple(cell.strip() for cell in row) == columns:
            invalid.append(InvalidRow(number, "the header once more"))
        else:
            rows[number] = dict(zip(columns, row, strict=True))
        if invalid and not columns:
            raise kind(f"{name}: the header, row {number}, cannot be read: {invalid[0].reason}")
    if not columns:
        raise kind(f"{name}: the file is empty")
    return UserTable(name, columns, rows, invalid)


def table_of_frame(frame: pd.DataFrame, name: str, kind: type[HeadscopeError]) -> UserTable:
    """The rows of a DataFrame, numbered from 0.

    Raises:
        HeadscopeError: two columns have one name.
    """
    columns = [str(column) for column in frame.columns]
    _check_header(columns, name, kind)
    return UserTable(name, columns, dict(enumerate(frame.to_dict("records"))), ())


def jsonl_table(raw: bytes, name: str, kind: type[HeadscopeError]) -> UserTable:
    r"""The values of a file with JSON on each line; a line ends at a line feed alone.

    Raises:
        HeadscopeError: it is not UTF-8.

    >>> jsonl_table(b'{"a": "b"}\n\n{"a": 1, "a": 2}', "a.jsonl", HeadscopeError).rows
    {1: {'a': 'b'}}
    """
    rows = {}
    invalid = []
    for number, line in enumerate(_decoded(raw, name, kind).split("\n"), 1):
        if line.strip():
            try:
                rows[number] = _json_value(line)
            except ValueError as error:
                invalid.append(InvalidRow(number, f"{first_line(error):.150}"))
    return UserTable(name, (), rows, invalid)


def json_content(raw: bytes, name: str, kind: type[HeadscopeError]) -> Any:
    """The value of a JSON file.

    Raises:
        HeadscopeError: it is not UTF-8 or not JSON, or an object has a key twice.
    """
    text = _decoded(raw, name, kind)
    with reported_as(kind, name, ValueError):
        return _json_value(text)


def is_unicode(text: str) -> bool:
    r"""True if a text can be encoded; half of a character, a lone surrogate, cannot.

    >>> is_unicode("né"), is_unicode("\ud800")
    (True, False)
    """
    return text.encode("utf-8", "replace").decode() == text


def _decoded(raw: bytes, name: str, kind: type[HeadscopeError]) -> str:
    """UTF-8 text without any byte-order mark.

    Raises:
        HeadscopeError: it is another encoding.
    """
    try:
        # files that were put together have byte-order marks within, too
        text = raw.decode("utf-8").replace("\ufeff", "")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise kind(
            f"{name}, line {line}: not UTF-8 (byte {raw[error.start]:#04x}); save it as UTF-8"
        ) from error
    # ASCII in UTF-16 without a mark is UTF-8, too
    if "\0" in text:
        line = text.partition("\0")[0].count("\n") + 1
        raise kind(f"{name}, line {line}: a NUL character, which no text has; save it as UTF-8")
    return text


def _records(text: str) -> Iterator[list[str] | str]:
    """The fields of each record of a CSV file, or the reason why it cannot be read.

    Nothing is read after a record whose end cannot be found.
    """
    # most lines have no quotation mark, and are split at once
    position = 0
    while position < len(text):
        start = position
        line = _LINE.match(text, start)
        assert line is not None  # an empty line matches
        if '"' not in line[1]:
            position = line.end()
            yield line[1].split(",")
            continue
        try:
            cells, position = _quoted_record(text, start)
        except ValueError as error:
            yield f"{error}; {_DOUBLE}"
            return
        if _ESCAPED.search(text, start, position):
            yield f'a backslash before a quotation mark (\\"); {_DOUBLE}'
        else:
            yield cells


def _quoted_record(text: str, start: int) -> tuple[list[str], int]:
    """The fields of the record that starts here, and where the next one starts.

    Raises:
        ValueError: quotation marks are not as RFC 4180 has them.
    """
    # a field may span lines, so that the record's end is known only from its fields
    cells = []
    position = start
    while True:
        quoted = _QUOTED.match(text, position)
        if quoted is not None:
            cells.append(quoted[1].replace('""', '"'))
            position = quoted.end()
        elif _OPENING.match(text, position):
            raise ValueError("a quotation mark is never closed")
        else:
            plain = _PLAIN.match(text, position)
            assert plain is not None  # an empty field matches
            # of "yes, no" after a word, a half would be a field
            if plain[0].count('"') % 2:
                raise ValueError(f"one quotation mark in the field {plain[0].strip()!r:.60}")
            cells.append(plain[0])
            position = plain.end()
        # a field ends at a comma or with its line
        end = _FIELD_END.match(text, position)
        if not end:
            after = text[position : position + 20]
            raise ValueError(f"{after!r} behind the closing quotation mark of a field")
        position = end.end()
        if end[0] != ",":
            return cells, position


def _check_header(columns: Sequence[str], name: str, kind: type[HeadscopeError]) -> None:
    """Refuse a header with a column twice, or without commas.

    Raises:
        HeadscopeError: the message names the column.
    """
    for column in columns:
        if columns.count(column) > 1:
            raise kind(f"{name}: {columns.count(column)} columns are named {column!r:.60}")
    for separator in _OTHER_SEPARATORS:
        if len(columns) == 1 and separator in columns[0]:
            raise kind(f"{name}: {separator!r} between the columns; put commas there")


def _json_value(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, is nested too deeply, has a key twice, or half of a character.
    """
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply") from None
    if _SURROGATE.search(text) and not is_unicode(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a text has half of a character (a lone surrogate)")
    return value


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON.

    Raises:
        ValueError: a key comes twice.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {repeated!r:.60} twice")
    return members
