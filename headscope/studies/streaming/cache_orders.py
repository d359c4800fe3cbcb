"""The orders in which heads begin to stream."""

from __future__ import annotations

CHANGE, MASS, RANDOM, GATE = "change", "mass", "random", "gate"
"""By how much their output would change, by the mass beyond what they keep, at random, and by gates
that were published."""
