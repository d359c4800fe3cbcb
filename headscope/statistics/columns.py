"""The columns of the two tables of a run, in order; docs/formats.md says what each holds."""

from __future__ import annotations

import pandas as pd

MARGIN_COLUMNS = [
    *("contested_p", "contested_least_p", "contested_hit_low", "contested_hit_high"),
    *("mass_error", "control_error", "hit_error", "contested_error"),
]
"""Columns of the test at contested queries, and of the errors of margins."""
SHADOW_COLUMNS = [
    *("shadow_mass", "shadow_hit_rate"),
    *("beyond_shadow", "beyond_shadow_low", "beyond_shadow_high"),
]
"""Columns of a head's shadow, in the order of `headscope.measure.shadow.ShadowScore`."""
GENERAL = "general"
"""The column of labels that stand for several tags of a head."""
MATCHED_ERROR = "matched_error"
"""The column that says how sure the lift over the second control is."""
RULE_LOW = "contested_rule_low"
"""The column of what simple rules get right at least, were the head's hit rate at its upper end."""
EVIDENCE_COLUMNS = [
    *("layer", "head", "type", "relation"),
    *("n", "mass", "control", "lift", "ci_low", "ci_high", "q_value"),
    *("hit_rate", "best_offset_rate", "twin_p999", "tagged"),
    *("chance", "rival", "baseline", "baseline_rate", "contested_n", "contested_lift"),
    *("verdict", "confirmed", "matched"),
    *("contested_mass", "contested_low", "contested_high"),
    *("contested_hit_rate", "contested_rule_rate", "contested_text"),
    *MARGIN_COLUMNS,
    *SHADOW_COLUMNS,
    GENERAL,
    MATCHED_ERROR,
    RULE_LOW,
]
"""A row per head and relation."""

HEAD_COLUMNS = [
    *("layer", "head", "primary", "tags", "relation"),
    *("control", "lift", "ci_low", "ci_high", "q_value"),
    *("first_token_mass", "entropy", "mean_distance", "variability", "shape"),
    *("reason", "kv_group", "mass", "direct_effects", "direct_effect_lift", "sink_share"),
]
"""A row per head."""
DIRECT_EFFECT_COLUMNS = ["direct_effects", "direct_effect_lift"]
"""Columns of `heads.csv` on a head's direct effects on the logits."""
EXPLAINED_COLUMNS = ["explained", "feature_model"]
"""After those of `heads.csv`, if a run was explained."""
EFFECT_NUMBERS = [
    "spread",
    *("second_lift", "second_low", "second_high"),
    *("moved", "moved_low", "moved_high"),
    "share",
]
"""Columns of effects that evidence on attention does not have."""
EFFECT_COLUMNS = [
    *("layer", "head", "type", "effect"),
    *("n", "on", "control", "lift", "ci_low", "ci_high", "q_value"),
    *EFFECT_NUMBERS,
    *("twin_p999", "floor", "tagged", "confirmed"),
]
"""A row per head and effect."""
EFFECT_NAMES = {"relation": "effect", "mass": "on"}
"""Columns of the evidence by their names in the table of effects."""
FEATURE_MODEL_COLUMNS = [
    *("layer", "head", "explained", "place", "feature", "kind", "queries"),
    *("weight", "unique", "ci_low", "ci_high"),
]
"""A row per head and feature of its rule."""


def rows_of_head(table: pd.DataFrame, layer: int, head: int) -> pd.DataFrame:
    """The rows of a table that are of one head, by its columns `layer` and `head`."""
    return table[(table["layer"] == layer) & (table["head"] == head)]


def strongest_effects_first(effects: pd.DataFrame) -> pd.Index:
    """Rows of a table of effects, the largest lifts in units of their floors first."""
    strength = (effects["lift"].abs() / effects["floor"]).fillna(0.0)
    return strength.sort_values(ascending=False, kind="stable").index
