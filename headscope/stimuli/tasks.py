"""Tasks: prompts with the answers that a model should give after them.

A task comes from a .csv or .jsonl file, from rows in Python, or by the name of one that ships.
Every row is checked before a model is loaded, and all invalid rows are reported at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import regex
from pydantic import Field, PlainValidator

from headscope.errors import (
    CorpusError,
    InvalidRow,
    check_choice,
    nearest_name,
)
from headscope.options import check_path, described, not_allowed
from headscope.paths import given_file
from headscope.stimuli.shipped_tasks import shipped_names, shipped_rows
from headscope.user_tables import UserTable, csv_table, is_unicode, jsonl_table, table_of_frame

REQUIRED = ("prompt", "answer")
OPTIONAL = ("wrong", "corrupt", "group")
COLUMNS = (*REQUIRED, *OPTIONAL)
SUFFIXES = (".csv", ".jsonl")
MIN_PROMPTS = 2
"""Fewest prompts of a task; one prompt has no interval."""

ROLE_NAME = regex.compile(r"[\p{L}_][\p{L}\p{M}\p{N}_-]{0,39}")
"""Name of a further column: a letter or `_`, then letters, digits, `_` and `-`; at most 40."""

# scripts that write no space between words; a vowel sign or an accent belongs to its letter
_UNSPACED = (
    *("Han", "Hiragana", "Katakana", "Bopomofo", "Yi", "Thai", "Lao", "Khmer", "Myanmar"),
    *("Tibetan", "Javanese", "Balinese", "Tai_Le", "New_Tai_Lue", "Tai_Tham", "Tai_Viet"),
)
_OF_UNSPACED = "".join(rf"\p{{scx={script}}}" for script in _UNSPACED)
_LETTER = rf"[\p{{L}}--[{_OF_UNSPACED}]]"
_WORD_END = regex.compile(rf"{_LETTER}[\p{{M}}\u200c\u200d]*\Z", regex.V1)
_WORD_START = regex.compile(_LETTER, regex.V1)


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    """A prompt and its answers."""

    prompt: str
    answer: str
    """Text that should follow the prompt, of one token or several."""
    wrong: str = ""
    """Text that should not follow; empty if the task compares no answers."""
    corrupt: str = ""
    """A prompt after which another answer is right; empty if the task has none."""
    group: str = ""
    """Rows of one group are resampled together; a row without a group is alone."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Text of each further column, by its name; the text is empty if this row has none.

    All rows of a task have the same names in the same order.
    """


@dataclass(frozen=True)
class Task:
    """Prompts of one kind, each with its answers."""

    name: str
    rows: tuple[TaskRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def compares(self) -> bool:
        """True if every row has a wrong answer."""
        return all(row.wrong for row in self.rows)

    @property
    def has_corrupt(self) -> bool:
        """True if every row has a corrupt prompt."""
        return all(row.corrupt for row in self.rows)

    def check_wrong(self, what: str) -> None:
        """Refuse a task of which a row has no wrong answer, for what needs it.

        Raises:
            CorpusError: a row has none.
        """
        if not self.compares:
            raise CorpusError(f"{self.name}: {what} needs a wrong answer in each row")

    def check_corrupt(self, what: str) -> None:
        """Refuse a task of which a row has no corrupt prompt, for what needs it.

        Raises:
            CorpusError: a row has none.
        """
        if not self.has_corrupt:
            raise CorpusError(f"{self.name}: {what} needs a corrupt prompt in each row")

    def first(self, count: int | None) -> Task:
        """The task with its first rows; all if None.

        Raises:
            CorpusError: these are too few for an interval.
        """
        if count is None:
            return self
        rows = self.rows[:count]
        _check_interval(self.name, rows)
        return replace(self, rows=rows)


def check_source(value: Any) -> Any:
    """A value that a task can be read from.

    Raises:
        ValueError: neither a name, a path, a list, a DataFrame nor a task.
    """
    if isinstance(value, Task | pd.DataFrame | list | tuple):
        return value
    try:
        return check_path(value)
    except ValueError as error:
        raise not_allowed("be a task: a name, a file, a list of rows or a DataFrame") from error


_FORMS = (
    "A .csv or .jsonl file with prompt, answer, and if wanted wrong, corrupt and group; or the "
    "name of a task that ships, such as ioi. In Python also rows."
)
TaskSource = Annotated[Any, PlainValidator(check_source), Field(description=_FORMS)]
OptionalTask = Annotated[
    Any,
    PlainValidator(lambda value: None if value is None else check_source(value)),
    Field(description=_FORMS),
]


def read_task(source: Any, *, seed: int = 0) -> Task:
    """A task from a file, from rows, or by its name.

    Args:
        source: a .csv or .jsonl file with the columns `prompt`, `answer` and, if wanted, `wrong`,
            `corrupt` and `group`, and further ones, which are the roles of a row; a list of dicts
            or a DataFrame with these columns; the name of a task that ships, see `shipped_names`;
            or a `Task`.
        seed: draws the words of a task that ships.

    Raises:
        CorpusError: the file is no table, or rows are invalid; the message lists them.
        HeadscopeError: there is no such file.
        ChoiceError: no task of that name ships.
    """
    if isinstance(source, Task):
        return source
    if isinstance(source, str | Path):
        path = Path(source)
        suffix = path.suffix.lower()
        if suffix in SUFFIXES:
            read = csv_table if suffix == ".csv" else jsonl_table
            content = given_file(path, "a task as .csv or .jsonl")
            return _checked_task(path.stem, read(content, str(path), CorpusError))
        # any other text is the name of a task that ships, whose rows are sound
        name = str(source)
        check_choice("task", name, [*shipped_names(), "a .csv or .jsonl file"])
        rows = shipped_rows(name, seed=seed)
        columns = _further_columns(rows)
        return Task(name, tuple(_task_row(row, columns) for row in rows))
    # rows in memory are numbered from 0, those of a file as in the file
    if isinstance(source, pd.DataFrame):
        return _checked_task("task", table_of_frame(source, "task", CorpusError))
    return _checked_task("task", UserTable("task", (), dict(enumerate(source)), ()))


def _checked_task(name: str, table: UserTable) -> Task:
    """The task of these rows.

    Args:
        name: its name in results.
        table: its rows, mappings from columns to text.

    Raises:
        CorpusError: a column is missing or has an unusable name, rows are invalid, or they are too
            few.
    """
    # a misspelt column would be one more column, so names come before rows
    columns = _further_columns([dict.fromkeys(table.columns), *table.rows.values()])
    for column in columns:
        fault = _fault_of_name(column)
        if fault:
            raise CorpusError(f"{table.name}: {fault}")
    table.check_columns(CorpusError, REQUIRED)
    known = (*COLUMNS, *columns)

    # a row is judged as it is run, with its spaces
    checked_rows: dict[int, TaskRow] = {}
    faults = []
    added = 0
    for number, row in table.rows.items():
        fault = _fault(row, known)
        if not fault:
            task_row = _task_row(row, columns)
            spaced = _with_spaces(task_row)
            added += spaced != task_row
            checked_rows[number] = spaced
            if spaced.wrong == spaced.answer:
                fault = f"wrong is the answer itself, {spaced.answer!r:.60}"
                fault += " with the space before it" if spaced != task_row else ""
        if fault:
            faults.append(InvalidRow(number, fault))
    table.check(CorpusError, faults)
    rows = tuple(checked_rows.values())
    _check_interval(name, rows)

    for column in ("wrong", "corrupt"):
        missing = [number for number, row in checked_rows.items() if not getattr(row, column)]
        if 0 < len(missing) < len(rows):
            raise CorpusError(
                f"{name}: {len(missing)} rows have no {column} (the first is row {missing[0]}); "
                "state it in every row or in none"
            )
    note = f"a space was added before the answers of {added} prompts that end in a letter"
    return Task(name, rows, (note,) if added else ())


def _check_interval(name: str, rows: Sequence[TaskRow]) -> None:
    """Refuse rows over which no interval can be computed.

    Raises:
        CorpusError: they are too few, or of one group.
    """
    if len(rows) < MIN_PROMPTS:
        raise CorpusError(f"{name}: {len(rows)} prompts; a task needs at least {MIN_PROMPTS}")
    groups = {row.group for row in rows}
    if len(groups) == 1 and "" not in groups:
        raise CorpusError(
            f"{name}: all {len(rows)} prompts have the group {groups.pop()!r:.60}; rows of one "
            f"group are resampled together, so one group gives no interval; name at least "
            f"{MIN_PROMPTS} groups, or leave the column out"
        )


def _further_columns(rows: Iterable[Any]) -> list[Any]:
    """Names of the columns that are not in `COLUMNS`, in the order in which rows have them."""
    names: dict[Any, None] = {}
    for row in rows:
        if isinstance(row, Mapping):
            names |= dict.fromkeys(row)
    return [name for name in names if name not in COLUMNS]


def _fault_of_name(column: Any) -> str:
    """Reason why a column cannot have this name; empty if it can."""
    if not isinstance(column, str) or not ROLE_NAME.fullmatch(column):
        return (
            f"a column is named {column!r:.60}; a name is at most 40 letters, digits, _ and -, and "
            "begins with a letter"
        )
    plain = column.casefold()
    # no row lacks an optional column, so wrong_answer would be passed over without a note
    words = regex.split(r"[\d_-]+", plain)
    meant = [name for name in COLUMNS if name == plain or (name in OPTIONAL and name in words)]
    suggestion = f" (is {meant[0]} meant?)" if meant else nearest_name(plain, COLUMNS)
    if not suggestion:
        return ""
    return f"a column is named {column!r}{suggestion}; the columns are {', '.join(COLUMNS)}"


def _fault(row: Any, columns: Iterable[str]) -> str:
    """Reason why a row is invalid; empty for a valid row."""
    if not isinstance(row, Mapping):
        return f"{described(row)} is not an object with {', '.join(REQUIRED)}"
    for name in columns:
        if not isinstance(row.get(name, ""), str | int | float | None):
            return f"{name} is {described(row[name])}; it should be text"
        if not is_unicode(_text(row, name)):
            return f"{name} is not text in Unicode: it contains half of a character"
    for name in REQUIRED:
        if not _text(row, name).strip():
            return f"{name} is missing"
    if _text(row, "corrupt") == _text(row, "prompt"):
        return "corrupt is the prompt itself"
    return ""


def _text(row: Mapping[str, Any], column: str) -> str:
    """The text of a cell; empty for a missing one, which pandas gives as NaN."""
    value = row.get(column)
    is_missing = value is None or (isinstance(value, float) and pd.isna(value))
    return "" if is_missing else str(value)


def _task_row(row: Mapping[str, Any], columns: Iterable[str]) -> TaskRow:
    values = {column: _text(row, column) for column in COLUMNS}
    # blanks around them are those after the commas of a file
    values["group"] = values["group"].strip()
    roles = {column: _text(row, column).strip() for column in columns}
    return TaskRow(**values, roles=roles)


def _with_spaces(row: TaskRow) -> TaskRow:
    """The row with a space where a letter of the prompt would meet one of an answer."""
    if not _WORD_END.search(row.prompt):
        return row
    answers = []
    for text in (row.answer, row.wrong):
        answers.append(f" {text}" if _WORD_START.match(text) else text)
    return replace(row, answer=answers[0], wrong=answers[1])
