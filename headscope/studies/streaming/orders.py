"""The orders in which heads begin to stream."""

from __future__ import annotations

CHANGE, MASS, RANDOM = "change", "mass", "random"
"""By how much their output would change, by the mass beyond what they keep, and at random."""
