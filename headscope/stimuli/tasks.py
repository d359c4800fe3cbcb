"""Tasks: prompts with the answers that a model should give after them.

A task comes from a .csv or .jsonl file, from rows in Python, or by the name of one that ships.
Every row is checked before a model is loaded, and all invalid rows are reported at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import regex
from pydantic import Field, PlainValidator

from headscope.errors import CorpusError, InvalidRow, check_choice, check_rows, reported_as
from headscope.options import check_path, described, not_allowed
from headscope.stimuli.shipped_tasks import shipped_names, shipped_rows

REQUIRED = ("prompt", "answer")
OPTIONAL = ("wrong", "corrupt", "group")
COLUMNS = (*REQUIRED, *OPTIONAL)
SUFFIXES = (".csv", ".jsonl")
MIN_PROMPTS = 2
"""Fewest prompts of a task; one prompt has no interval."""

# scripts that write a space between words
_LETTER = r"[\p{Latin}\p{Greek}\p{Cyrillic}]"
_WORD_END = regex.compile(rf"{_LETTER}$")
_WORD_START = regex.compile(rf"^{_LETTER}")


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
        """The task with its first rows; all if None."""
        return self if count is None else replace(self, rows=self.rows[:count])


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
            `corrupt` and `group`; a list of dicts or a DataFrame with these columns; the name of a
            task that ships, see `shipped_names`; or a `Task`.
        seed: draws the words of a task that ships.

    Raises:
        CorpusError: the file cannot be read, or rows are invalid; the message lists them.
        ChoiceError: no task of that name ships.
    """
    if isinstance(source, Task):
        return source
    if isinstance(source, str | Path):
        if Path(source).suffix.lower() in SUFFIXES:
            return _checked_task(Path(source).stem, _rows_of_file(Path(source)), first=2)
        return _shipped_task(str(source), seed)
    if isinstance(source, pd.DataFrame):
        return _checked_task("task", source.to_dict("records"), first=0)
    return _checked_task("task", list(source), first=0)


def _shipped_task(name: str, seed: int) -> Task:
    names = shipped_names()
    check_choice("task", name, [*names, "a .csv or .jsonl file"])
    return Task(name, tuple(TaskRow(**row) for row in shipped_rows(name, seed=seed)))


def _rows_of_file(path: Path) -> list[Any]:
    """The rows of a file as they are written.

    Raises:
        CorpusError: the file cannot be read.
    """
    with reported_as(CorpusError, f"{path}: cannot be read as a task", OSError, ValueError):
        if path.suffix.lower() == ".csv":
            table = pd.read_csv(path, dtype=str, keep_default_na=False)
            rows: list[Any] = table.to_dict("records")
            return rows
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]


def _checked_task(name: str, rows: Sequence[Any], *, first: int) -> Task:
    """The task of these rows.

    Args:
        name: its name in results.
        rows: mappings from columns to text.
        first: number of the first row in messages: 2 below the header of a file.

    Raises:
        CorpusError: rows are invalid, or too few.
    """
    faults = []
    for number, row in enumerate(rows, first):
        fault = _fault(row)
        if fault:
            faults.append(InvalidRow(number, fault))
    check_rows(CorpusError, name, faults, of=len(rows))
    if len(rows) < MIN_PROMPTS:
        raise CorpusError(f"{name}: {len(rows)} prompts; a task needs at least {MIN_PROMPTS}")
    for column in ("wrong", "corrupt"):
        missing = [n for n, row in enumerate(rows, first) if not _text(row, column)]
        if 0 < len(missing) < len(rows):
            raise CorpusError(
                f"{name}: {len(missing)} rows have no {column} (the first is row {missing[0]}); "
                "state it in every row or in none"
            )
    return _with_spaces(name, [_task_row(row) for row in rows])


def _fault(row: Any) -> str:
    """Reason why a row is invalid; empty for a valid row."""
    if not isinstance(row, Mapping):
        return f"{described(row)} is not an object with {', '.join(REQUIRED)}"
    unknown = [str(name) for name in row if name not in COLUMNS]
    if unknown:
        return f"no column named {unknown[0]!r:.60}; choose from: {', '.join(COLUMNS)}"
    for name in REQUIRED:
        if not _text(row, name).strip():
            return f"{name} is missing"
    for name in COLUMNS:
        if not isinstance(row.get(name, ""), str | int | float | None):
            return f"{name} is {described(row[name])}; it should be text"
    if _text(row, "wrong") and _text(row, "wrong") == _text(row, "answer"):
        return "wrong is the answer itself"
    if _text(row, "corrupt") and _text(row, "corrupt") == _text(row, "prompt"):
        return "corrupt is the prompt itself"
    return ""


def _text(row: Mapping[str, Any], column: str) -> str:
    """The text of a cell; empty for a missing one, which pandas gives as NaN."""
    value = row.get(column)
    is_missing = value is None or (isinstance(value, float) and pd.isna(value))
    return "" if is_missing else str(value)


def _task_row(row: Mapping[str, Any]) -> TaskRow:
    return TaskRow(**{column: _text(row, column) for column in COLUMNS})


def _with_spaces(name: str, rows: Iterable[TaskRow]) -> Task:
    """The task; a space is added where a letter of a prompt would meet one of an answer."""
    spaced = []
    added = 0
    for row in rows:
        answers = {}
        for column in ("answer", "wrong"):
            text = getattr(row, column)
            if _WORD_END.search(row.prompt) and _WORD_START.search(text):
                answers[column] = f" {text}"
        added += bool(answers)
        spaced.append(replace(row, **answers))
    note = f"a space was added before the answers of {added} prompts that end in a letter"
    return Task(name, tuple(spaced), (note,) if added else ())
