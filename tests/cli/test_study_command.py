"""Commands of studies take what their functions take, with the same defaults, and hand it on."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest
from typer.testing import CliRunner

from headscope.cli import app
from headscope.studies.study_table import imported


class CalledError(Exception):
    """The function of a study was called with these arguments."""


@pytest.fixture
def called(monkeypatch):
    """Arguments of a study's function as a command line calls it."""

    def stub(path: str) -> Any:
        @wraps(imported(path))
        def function(**arguments: Any) -> None:
            raise CalledError(arguments)

        return function

    monkeypatch.setattr("headscope.cli.study_command.imported", stub)

    def call(*words: str) -> dict[str, Any]:
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, CalledError), done.output
        return done.exception.args[0]

    return call


def test_an_option_reaches_its_function(called):
    assert called("study", "collapse", "mini", "--mixing", "--corpus", "a", "--corpus", "b") == {
        "model": "mini", "corpus": ["a", "b"], "mixing": True, "max_tokens": 8192, "device": "auto",
    }  # fmt: skip
    verified = called("verify", "runs/x", "--as", "gpt2")
    assert (verified["model"], verified["scores"]) == ("gpt2", None)
    explained = called("explain", "mini", "--features", "4")
    assert (explained["features"], explained["windows"]) == (4, 56)
    counted = called("study", "anatomy", "mini", "--context", "3")
    assert counted == {"model": "mini", "context": 3}
