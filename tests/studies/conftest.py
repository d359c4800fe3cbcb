"""Text for the interventions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headscope.cli import main


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some windows of unequal length."""
    folder = tmp_path_factory.mktemp("story")
    sentence = "Alice told them that she was in the house and the old keys were very tired. "
    for name, times in (("a", 1), ("b", 3), ("c", 7), ("d", 2)):
        (folder / f"{name}.txt").write_text(sentence[len(name) * times :] * times)
    return folder


@pytest.fixture
def command(monkeypatch, capsys):
    """The command line within this process: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["headscope", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        told = capsys.readouterr()
        return stopped.value.code, told.out, told.err

    return run
