"""Tasks that a few examples tell: each a list of questions, one word each, with their answers.

Most are read off lists that headscope has for other questions; those of `data/task_words.csv` were
written for this one.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from headscope.corpus.controlled.forms import word_relations
from headscope.corpus.controlled.lists import COUNTRIES, DIGITS, VERBS
from headscope.corpus.shipped import data_folder
from headscope.corpus.word_pairs import shipped_pairs
from headscope.errors import ChoiceError, CorpusError

Pair = tuple[str, str]
"""A question and its answer."""
COLUMNS = ["task", "question", "answer"]
_FORMS = ("antonym", "capital", "comparative", "gender", "past", "people", "plural", "superlative")
LETTERED = 120
"""Words whose letters are asked for."""


@cache
def shipped_tasks() -> dict[str, tuple[Pair, ...]]:
    """The tasks that ship with headscope, by name; no question comes twice in one.

    >>> [answer for question, answer in shipped_tasks()["gerund"] if question == "write"]
    ['writing']
    """
    tasks: dict[str, Iterable[Pair]] = {
        name: [(row.word, row.right[0]) for row in word_relations()[name].words] for name in _FORMS
    }
    tasks["country"] = [(capital, country) for country, capital, _ in COUNTRIES]
    tasks["present"] = [(past, verb) for verb, past, _ in VERBS]
    tasks["gerund"] = [(verb, gerund) for verb, _, gerund in VERBS]
    tasks["singular"] = [(plural, noun) for noun, plural in tasks["plural"]]
    tasks["kind"] = _kinds()
    tasks["synonym"] = [
        (row.first, row.second) for row in shipped_pairs().pairs if row.relation == "synonym"
    ]
    words = list(dict.fromkeys(row.first for row in shipped_pairs().pairs if row.first.islower()))
    tasks["first-letter"] = [(word, word[0]) for word in words[:LETTERED]]
    tasks["last-letter"] = [(word, word[-1]) for word in words[:LETTERED]]
    tasks["capitalised"] = [(word, word.capitalize()) for word in words[:LETTERED]]
    tasks["next-number"] = list(pairwise(DIGITS))
    tasks |= read_tasks(data_folder() / "task_words.csv")
    return {name: _once(pairs) for name, pairs in sorted(tasks.items())}


def read_tasks(path: Path) -> dict[str, tuple[Pair, ...]]:
    """Tasks from a file with the columns `task,question,answer`.

    Raises:
        CorpusError: it cannot be read, has other columns, or a row lacks a value.
    """
    tasks: dict[str, list[Pair]] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file)
            if rows.fieldnames != COLUMNS:
                received = ",".join(rows.fieldnames or ()) or "none"
                raise CorpusError(f"{path}: columns {received:.200}, expected {','.join(COLUMNS)}")
            for row in rows:
                values = [(row[name] or "").strip() for name in COLUMNS]
                if not all(values) or None in row:
                    raise CorpusError(
                        f"{path}:{rows.line_num}: a task, a question and an answer are expected"
                    )
                tasks.setdefault(values[0], []).append((values[1], values[2]))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{path}: cannot be read as a list of tasks: {error}") from error
    if not tasks:
        raise CorpusError(f"{path}: it holds no tasks")
    return {name: _once(pairs) for name, pairs in tasks.items()}


def chosen_tasks(names: str) -> Mapping[str, tuple[Pair, ...]]:
    """The tasks that are asked for.

    Args:
        names: `all`, names such as `antonym,capital`, or a file as for `read_tasks`.

    Raises:
        ChoiceError: no such task.
        CorpusError: the file cannot be read.
    """
    if names == "all":
        return shipped_tasks()
    if names.endswith(".csv"):
        return read_tasks(Path(names))
    shipped = shipped_tasks()
    task_names = list(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in task_names:
        if name not in shipped:
            raise ChoiceError("task", name, ("all", *shipped))
    return {name: shipped[name] for name in task_names}


def _kinds() -> list[Pair]:
    """Nouns with the one kind that the list says they are; those with several would be unclear."""
    rows = [row for row in word_relations()["kind"].words if len(row.right) == 1]
    return [(row.word, row.right[0]) for row in rows]


def _once(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    answers: dict[str, str] = {}
    for question, answer in pairs:
        answers.setdefault(question, answer)
    return tuple(answers.items())
