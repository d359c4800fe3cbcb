"""Tasks that ship, and files of tasks."""

from __future__ import annotations

import re

import pytest

from headscope.corpus.controlled.tasks import read_tasks
from headscope.errors import CorpusError


def test_a_file_of_tasks_needs_its_three_columns(tmp_path):
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n")
    with pytest.raises(CorpusError, match="columns a,b, expected task,question,answer"):
        read_tasks(wrong)
    wrong.write_text("task,question,answer\nx,hot\n")
    with pytest.raises(CorpusError, match=re.escape("wrong.csv:2: a task, a question")):
        read_tasks(wrong)
