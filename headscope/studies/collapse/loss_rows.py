"""Names in the rows of the table of losses."""

from __future__ import annotations

ALL, UNTOUCHED, NO_MIXING = "all", "untouched", "no W_O"
COLUMNS = ["layer", "how", "loss", "rise", "ci_low", "ci_high"]
