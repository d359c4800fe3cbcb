"""The orders in which heads are masked, and what the curve's columns are called for them."""

from __future__ import annotations

IMPORTANCE, RANDOM, TYPE = "importance", "random", "type"
SURVIVORS_PREFIX = "kept_"
"""Before a type's name: the column with how many of its heads are still there."""
