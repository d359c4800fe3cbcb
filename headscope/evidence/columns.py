"""The columns of the two tables of a run, in order; docs/formats.md says what each holds."""

from __future__ import annotations

EVIDENCE_COLUMNS = [
    "layer", "head", "type", "relation", "n", "mass", "control", "lift", "ci_low", "ci_high",
    "q_value", "hit_rate", "best_offset_rate", "twin_p999", "tagged", "chance",
]  # fmt: skip
"""A row per head and relation."""

HEAD_COLUMNS = [
    "layer", "head", "primary", "tags", "relation", "score", "control", "lift", "ci_low",
    "ci_high", "q_value", "first_token_mass", "entropy", "mean_distance", "variability", "shape",
    "reason", "kv_group", "mass",
]  # fmt: skip
"""A row per head. `score` is an older name of `mass`, kept with the
same numbers until the next version."""
