"""Long files of tests come first, so that the processes that share the tests end together.

xdist gives a process one file after the other, those with the most tests first. A file of two tests
that take a minute would come last by that, while the other processes have nothing left to do.
"""

from __future__ import annotations

import pytest

LONG = (
    "test_notebooks.py",
    "models/test_real_model.py",
    "docs/test_formats.py",
    "test_plain_install.py",
    "studies/test_progress.py",
    "runs/test_atlas.py",
    "relations/test_scores.py",
    "runs/test_resume.py",
    "oracles/test_writers.py",
    "measure/test_tally.py",
    "oracles/test_planted.py",
    "docs/test_build.py",
    "views/test_cut.py",
    "studies/function_vectors/test_function_vectors.py",
    "runs/test_any_run_folder.py",
    "cli/test_termination.py",
    "test_mini.py",
    "views/test_atlas.py",
    "measure/test_memory.py",
    "oracles/test_known_heads.py",
    "studies/ablate/test_ablate.py",
    "cli/test_cli.py",
    "fuzz/test_bad_input.py",
    "cli/test_terminal.py",
    "models/test_engines.py",
)
"""Those that classify whole models, run notebooks or start many commands, about longest first."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each file's tests keep their order among themselves."""
    home = config.rootpath / "tests"
    ranks = {home / name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
