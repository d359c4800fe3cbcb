"""Folders of data that does not come with the repository."""

from __future__ import annotations

from pathlib import Path

from headscope.models.packaged import PACKAGED

SHARED = Path(__file__).parents[3] / "shared" / "data"
SMOLLM2 = PACKAGED["smollm2"].path
"""The file of a real model in the user's cache, once `headscope check models --fetch smollm2` was run."""
