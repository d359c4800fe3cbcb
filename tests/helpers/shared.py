"""Public data beside a checkout, which is no part of it: tests of real input skip without it."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).absolute().parents[3] / "shared" / "data"
shared_data = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"needs the public treebanks in {SHARED}"
)
"""Mark of a test that reads it."""


def pud(language: str) -> Path | None:
    """The treebank of Parallel UD in a language; None if there is none."""
    return next((SHARED / "pud" / language).glob("*.conllu"), None)
