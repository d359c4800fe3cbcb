"""Rows of studies name what exists: a path that leads nowhere would show at its first use alone."""

from __future__ import annotations

from importlib import import_module

import pytest

from headscope.studies.study_table import STUDIES

PATHS = sorted({row.function for row in STUDIES})


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_a_row_leads_to_a_function_or_a_class(path):
    module, _, name = path.partition(":")
    assert callable(getattr(import_module(f"headscope.studies.{module}"), name))
