"""Relations between words for what weights make of a word, and tasks that a few examples tell.

Each word comes with its rivals too: other forms of it, which a head raises that raises whatever
belongs to the word. A task is a list of questions, one word each, with their answers. The lists
were written here or in `data/task_words.csv`, but for antonyms and kinds (`word_pairs.csv`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from headscope.corpus.controlled import lists
from headscope.corpus.controlled.lists import ADJECTIVES, COUNTRIES, CYCLIC, DIGITS, IN_ORDER, VERBS
from headscope.corpus.shipped import data_folder
from headscope.corpus.word_pairs import shipped_pairs
from headscope.errors import ChoiceError, CorpusError

Pair = tuple[str, str]
"""A question and its answer."""
COLUMNS = ["task", "question", "answer"]
_FORMS = ("antonym", "capital", "comparative", "gender", "past", "people", "plural", "superlative")
LETTERED = 120
"""Words whose letters are asked for."""


class FormQuestion(NamedTuple):
    """A word, the words that stand in the relation to it, and rivals, one of each kind."""

    word: str
    right: tuple[str, ...]
    rivals: tuple[str, ...] = ()


class WordRelation(NamedTuple):
    """A relation between words: what it is called and which words it holds of."""

    meaning: str
    words: tuple[FormQuestion, ...]
    rivals: tuple[str, ...] = ()
    """Meaning of each rival of a word."""


_GENDERS = (
    "man/woman boy/girl king/queen uncle/aunt father/mother brother/sister son/daughter "
    "husband/wife prince/princess grandfather/grandmother nephew/niece waiter/waitress "
    "actor/actress he/she him/her himself/herself men/women boys/girls brothers/sisters "
    "sons/daughters male/female gentleman/lady fathers/mothers kings/queens dad/mom guy/girl"
)
_PLURALS = (
    *lists.PEOPLE,
    *lists.THINGS,
    *lists.PLACES,
    *lists.FEMALE,
    *lists.MALE,
)


@cache
def word_relations() -> dict[str, WordRelation]:
    """Each relation by its name.

    >>> [word.right for word in word_relations()["capital"].words if word.word == "Peru"]
    [('Lima',)]
    """
    genders = (entry.split("/") for entry in _GENDERS.split())
    plurals = dict(entry.split("/")[:2] for entry in _PLURALS)
    return {
        "antonym": WordRelation("a word's opposite", _antonyms()),
        "capital": _form("a country's capital", COUNTRIES, 1, 2, "its people"),
        "comparative": _form("an adjective's comparative", ADJECTIVES, 1, 2, "its superlative"),
        "gender": WordRelation("the female form", tuple(FormQuestion(a, (b,)) for a, b in genders)),
        "kind": WordRelation("the kind of a thing", _hypernyms()),
        "past": _form("a verb's past tense", VERBS, 1, 2, "its -ing form"),
        "people": _form("a country's people or language", COUNTRIES, 2, 1, "its capital"),
        "plural": WordRelation(
            "the plural", tuple(FormQuestion(a, (b,)) for a, b in plurals.items())
        ),
        "successor": WordRelation(
            "what comes next in a list", _successors(), ("what comes before",)
        ),
        "superlative": _form("an adjective's superlative", ADJECTIVES, 2, 1, "its comparative"),
    }


def _form(
    meaning: str, rows: Sequence[Sequence[str]], right: int, rival: int, name: str
) -> WordRelation:
    words = tuple(FormQuestion(row[0], (row[right],), (row[rival],)) for row in rows)
    return WordRelation(meaning, words, (name,))


def _antonyms() -> tuple[FormQuestion, ...]:
    """Each word in one pair only, so that pairs say something each; all its opposites are right."""
    lexicon_pairs, seen = shipped_pairs(), set[str]()
    opposites = lexicon_pairs.related["antonym"]
    questions = []
    for pair in lexicon_pairs.pairs:
        if pair.relation == "antonym" and not {pair.first, pair.second} & seen:
            seen |= {pair.first, pair.second}
            questions.append(FormQuestion(pair.first, tuple(sorted(opposites[pair.first.lower()]))))
    return tuple(questions)


def _hypernyms() -> tuple[FormQuestion, ...]:
    kinds: dict[str, list[str]] = {}
    for pair in shipped_pairs().pairs:
        if pair.relation == "hypernym" and pair.upos == "NOUN":
            kinds.setdefault(pair.first, []).append(pair.second)
    return tuple(FormQuestion(word, tuple(right)) for word, right in kinds.items())


def _successors() -> tuple[FormQuestion, ...]:
    questions = []
    for name, members in IN_ORDER.items():
        around = (members[-1], *members, members[0]) if name in CYCLIC else members
        before = {b: a for a, b in pairwise(around)}
        after = dict(pairwise(around))
        inner = [word for word in members if word in before and word in after]
        questions += [FormQuestion(word, (after[word],), (before[word],)) for word in inner]
    return tuple(questions)


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
    # a noun with several kinds would make an unclear question
    kinds = [row for row in word_relations()["kind"].words if len(row.right) == 1]
    tasks["kind"] = [(row.word, row.right[0]) for row in kinds]
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


def _once(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    answers: dict[str, str] = {}
    for question, answer in pairs:
        answers.setdefault(question, answer)
    return tuple(answers.items())
