"""Tasks that ship, and files of tasks."""

from __future__ import annotations

import re

import pytest

from headscope.corpus.controlled.tasks import read_tasks, shipped_tasks
from headscope.errors import CorpusError


def test_a_file_of_tasks_needs_its_three_columns(tmp_path):
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n")
    with pytest.raises(CorpusError, match="columns a,b, expected task,question,answer"):
        read_tasks(wrong)
    wrong.write_text("task,question,answer\nx,hot\n")
    with pytest.raises(CorpusError, match=re.escape("wrong.csv:2: a task, a question")):
        read_tasks(wrong)


def test_no_shipped_task_asks_a_question_twice_or_for_itself():
    for name, pairs in shipped_tasks().items():
        questions = [question for question, _ in pairs]
        assert len(questions) == len(set(questions)) >= 24, name
        assert all(question != answer for question, answer in pairs), name
