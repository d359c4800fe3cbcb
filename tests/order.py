"""Long files of tests come first, so that the processes that share the tests end together.

xdist gives a process one file after the other, those with the most tests first. A file of two tests
that take a minute would come last by that, while the other processes have nothing left to do.
"""

from __future__ import annotations

import pytest

LONG = (
    "models/test_real_model.py",
    "test_plain_install.py",
    "test_notebooks.py",
    "studies/validation/test_calibrate_writes.py",
    "studies/validation/test_calibrate.py",
    "studies/validation/test_heuristic_benchmark.py",
    "fuzz/test_bad_input.py",
    "models/test_encoders.py",
    "studies/sweep/test_shards.py",
    "studies/test_progress.py",
    "views/test_cut.py",
    "runs/test_resume.py",
    "studies/sweep/test_sweep.py",
    "models/test_planted_kinds.py",
    "test_mini.py",
    "docs/test_formats.py",
    "models/test_hybrids.py",
    "models/test_translator.py",
    "measure/test_query_composition.py",
    "docs/test_build.py",
    "views/test_looking.py",
    "views/test_one_count.py",
    "serve/test_page.py",
    "models/test_layouts_h_to_z.py",
    "models/test_layouts_a_to_g.py",
)
"""Those that classify whole models, run notebooks or start many commands, about longest first."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each file's tests keep their order among themselves."""
    home = config.rootpath / "tests"
    ranks = {home / name: rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
