"""The choice of `--dtype auto`: the beginning of a run's text is read in both precisions.

Rounding is a noise that is added to each mass. It is tolerated where it is small beside the noise
that a run has anyway, as its text is a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from headscope.measure.tally import Tally
from headscope.models.model import NARROW, WIDE

TOKENS = 256
"""Tokens of text that are read in both precisions, to the end of a window."""
FEWEST = 20
"""Queries without which a relation's masses are not compared: those of single queries vary more
than any mean that is judged."""
MEAN_DIFFERENCE = 0.0015
"""A tenth of the standard error of a tagged head's mass in a run of 40,000 tokens: .033 is its
median in SmolLM2 by 8,000, which √5 divides. Added to it in squares it is half a per cent."""
LARGEST_DIFFERENCE = 0.05
"""The largest of some ten thousand differences: three of those standard errors, where a normal
noise of the same size would reach four."""


@dataclass(frozen=True)
class PrecisionCheck:
    """A precision, and what led to it."""

    dtype: str
    reason: str
    tokens: int = 0
    """Read in both; 0 if half precision was not tried."""
    masses: int = 0
    """Means over queries that were compared."""
    mean_difference: float = 0.0
    """Mean difference in [0, 1]; not finite if half precision overflowed, and then no fact."""
    largest_difference: float = 0.0

    @property
    def record(self) -> dict[str, Any]:
        """`precision` of `run.json`."""
        entries: dict[str, Any] = {"dtype": self.dtype, "reason": self.reason}
        if self.tokens:
            entries |= {"tokens": self.tokens, "masses": self.masses}
            for name in ("mean_difference", "largest_difference"):
                value = getattr(self, name)
                if isfinite(value):
                    entries[name] = round(value, 6)
            entries |= {"mean_bound": MEAN_DIFFERENCE, "largest_bound": LARGEST_DIFFERENCE}
        return entries


def compare_precisions(wide: Tally, narrow: Tally, tokens: int) -> PrecisionCheck:
    """Choose by the same text's sums in both precisions."""
    # relations with few queries differ by chance
    queries = wide.queries.sum(0)
    known = queries >= FEWEST
    if not known.any():
        return PrecisionCheck(WIDE, f"no relation has {FEWEST} queries in the text's first tokens")
    means = [tally.target.sum(0)[known] / queries[known][:, None, None] for tally in (wide, narrow)]
    differences = np.abs(means[0] - means[1])
    mean, largest = float(differences.mean()), float(differences.max())
    holds = mean <= MEAN_DIFFERENCE and largest <= LARGEST_DIFFERENCE  # NaN does not
    # the reason is recorded whatever is chosen
    if not isfinite(mean):
        reason = "numbers overflow in half precision"
    else:
        reason = f"rounding is {'small compared with noise' if holds else 'too large'}"
    dtype = NARROW if holds else WIDE
    return PrecisionCheck(dtype, reason, tokens, differences.size, mean, largest)
