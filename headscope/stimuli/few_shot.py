"""Tasks of a question word and an answer word, and their few-shot prompts (Todd et al. 2024).

Prompts are clean, with shuffled answers, or zero-shot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headscope.corpus.document import Document
from headscope.corpus.shipped import data_folder
from headscope.errors import CorpusError, InvalidRow, check_choice
from headscope.stimuli.prompts import Spelling
from headscope.stimuli.stimulus import TextTokenizer
from headscope.user_tables import read_csv

Pair = tuple[str, str]
"""A question and its answer."""
COLUMNS = ["task", "question", "answer"]
QUESTION, ANSWER, END = "Q: ", "\nA:", "\n\n"
CLEAN, SHUFFLED, ZERO_SHOT = "clean", "shuffled", "zero-shot"
TRIES = 200


def word_tasks() -> dict[str, tuple[Pair, ...]]:
    """The tasks that ship with headscope, by name; no question comes twice in one.

    >>> [answer for question, answer in word_tasks()["gerund"] if question == "write"]
    ['writing']
    """
    return read_tasks(data_folder() / "task_words.csv")


def read_tasks(path: Path) -> dict[str, tuple[Pair, ...]]:
    """Tasks from a file with the columns `task,question,answer`.

    Raises:
        CorpusError: it is not a table, it lacks a column, or rows are invalid; the message lists
            them.
        HeadscopeError: there is no such file.
    """
    table = read_csv(path, CorpusError, f"a table {','.join(COLUMNS)}")
    table.check_columns(CorpusError, COLUMNS)
    answers_by_task: dict[str, dict[str, str]] = {}
    invalid = []
    for number, row in table.rows.items():
        cells = {column: row[column].strip() for column in COLUMNS}
        empty = [column for column, cell in cells.items() if not cell]
        if empty:
            invalid.append(InvalidRow(number, f"{empty[0]} is missing"))
        # of a question that comes again the first answer counts
        answers = answers_by_task.setdefault(cells["task"], {})
        answers.setdefault(cells["question"], cells["answer"])
    table.check(CorpusError, invalid)
    return {name: tuple(answers.items()) for name, answers in answers_by_task.items()}


def chosen_tasks(names: str) -> Mapping[str, tuple[Pair, ...]]:
    """The tasks that are asked for.

    Args:
        names: `all`, names such as `antonym,capital`, or a file as for `read_tasks`.

    Raises:
        ChoiceError: no such task.
        CorpusError: the file cannot be read.
    """
    if names == "all":
        return word_tasks()
    if names.endswith(".csv"):
        return read_tasks(Path(names))
    shipped = word_tasks()
    task_names = list(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in task_names:
        check_choice("task", name, ("all", *shipped))
    return {name: shipped[name] for name in task_names}


class PromptSize(NamedTuple):
    """The number of examples and of prompts, and the seed of both."""

    shots: int
    prompts: int
    seed: int


@dataclass(frozen=True, eq=False)
class FewShot:
    """One prompt, and the answer that is due behind it."""

    tokens: Int[Tensor, " position"]
    """The beginning-of-text token first."""
    right: int
    """The first token of the answer."""


@dataclass(frozen=True, eq=False)
class WordTask:
    """A task's words as a tokenizer spells them, in halves that share no question."""

    name: str
    halves: tuple[tuple[Pair, ...], tuple[Pair, ...]]
    first: Mapping[str, int]
    """The first token of each question and answer."""

    @property
    def answers(self) -> list[int]:
        """First tokens of its answers."""
        return sorted({self.first[answer] for half in self.halves for _, answer in half})

    @property
    def words(self) -> list[int]:
        """First tokens of its questions and answers."""
        return sorted(set(self.first.values()))


def spelled_task(name: str, pairs: Sequence[Pair], spelling: Spelling, *, seed: int) -> WordTask:
    """The pairs that can be asked, in random order and two halves.

    Left out are pairs whose answer begins as another answer of the task, or as their question.
    """
    # the first token of each word that has one of its own
    first: dict[str, int] = {}
    for word in dict.fromkeys(word for pair in pairs for word in pair):
        token = spelling.first(word)
        if token is not None:
            first[word] = token
    # a first token that answers share does not tell which of them it begins
    answers_of: dict[int, set[str]] = {}
    for _, answer in pairs:
        if answer in first:
            answers_of.setdefault(first[answer], set()).add(answer)
    usable = [
        (question, answer)
        for question, answer in pairs
        if question in first
        and answer in first
        and first[question] != first[answer]
        and len(answers_of[first[answer]]) == 1
    ]
    # halves share no pair
    order = np.random.default_rng([seed, *name.encode()]).permutation(len(usable))
    halves = tuple(usable[i] for i in order[::2]), tuple(usable[i] for i in order[1::2])
    used = {word for pair in usable for word in pair}
    return WordTask(name, halves, {word: first[word] for word in first if word in used})


def few_shot_prompts(
    task: WordTask,
    half: int,
    kind: str,
    *,
    tokenizer: TextTokenizer,
    size: PromptSize,
) -> list[FewShot]:
    """Prompts of one half of a task's words; those of each kind ask the same questions."""
    pairs = task.halves[half]
    few_shot = []
    for number, (question, answer) in enumerate(pairs[: size.prompts]):
        # a generator for each prompt, so that all kinds have the same examples
        rng = np.random.default_rng([size.seed, half, number])
        others = [pair for pair in pairs if pair[0] != question]
        examples = [others[i] for i in rng.permutation(len(others))[: size.shots]]
        if kind == SHUFFLED:
            examples = _shuffled(examples, rng)
        if kind == ZERO_SHOT:
            examples = []
        few_shot.append(_prompt(examples, question, task.first[answer], tokenizer))
    return few_shot


def _shuffled(pairs: Sequence[Pair], rng: np.random.Generator) -> list[Pair]:
    """The pairs with their answers exchanged, as few as can be where they are right."""
    answers = [answer for _, answer in pairs]
    best = answers
    for _ in range(TRIES):
        # answers that come twice can be right in any order, so that some tries are needed
        dealt = [answers[i] for i in rng.permutation(len(answers))]
        if _right(dealt, answers) < _right(best, answers):
            best = dealt
        if not _right(best, answers):
            break
    return [(question, answer) for (question, _), answer in zip(pairs, best, strict=True)]


def _right(dealt: Sequence[str], answers: Sequence[str]) -> int:
    return sum(one == other for one, other in zip(dealt, answers, strict=True))


def _prompt(
    examples: Sequence[Pair], question: str, right: int, tokenizer: TextTokenizer
) -> FewShot:
    text = ""
    for word, answer in examples:
        text += f"{QUESTION}{word}{ANSWER} {answer}{END}"
    text += f"{QUESTION}{question}{ANSWER}"
    encoded = tokenizer.encode(Document("prompt", text, ()))
    tokens = np.concatenate([[tokenizer.bos], encoded.tokens])
    tokens = tokens.astype(np.int64)
    return FewShot(torch.from_numpy(tokens), right)
