"""A command that is forked is run like one that is started."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers.shell import headscope

LINES = [["heads"], ["--version"], ["classify", "mini", "--corpus", "nowhere"], ["data", "--help"]]


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_it_ends_with_the_same_code_and_the_same_words(tmp_path, words):
    started = subprocess.run(
        [sys.executable, "-c", "from headscope.cli import main; main()", *words],
        capture_output=True, text=True, cwd=tmp_path, check=False,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "100"},
    )  # fmt: skip
    forked = headscope(*words, cwd=tmp_path)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode,
        started.stdout,
        started.stderr,
    )
    assert forked.stdout or forked.stderr


def test_it_is_run_in_the_folder_of_the_call(tmp_path):
    (tmp_path / "words.conllu").write_text("one\ttwo\n")
    words = ("classify", "mini", "--corpus", "words.conllu")
    assert "words.conllu:1: 2 columns" in headscope(*words, cwd=tmp_path).stderr
    (elsewhere := tmp_path / "elsewhere").mkdir()
    assert "words.conllu: no such corpus file" in headscope(*words, cwd=elsewhere).stderr
