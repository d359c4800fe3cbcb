"""Columns of the tables of a run, in order; docs/reference/columns.md describes them."""

from __future__ import annotations

import pandas as pd

BEYOND_COLUMNS = ("beyond_surrogate", "beyond_low", "beyond_high")
SURROGATE_COLUMNS = [
    *("surrogate_mass", "surrogate_hit_rate", "surrogate_wrong"),
    *BEYOND_COLUMNS,
]
"""Columns of a head's surrogate; see `headscope.statistics.surrogate.SurrogateScore`."""
REPLICATES = "replicates"
"""Column of the probability that another text of the same size gives a tag again."""
GENERAL = "general"
"""The column of labels that stand for several tags of a head."""
PRELIMINARY = "preliminary"
"""Column of tags that rest on little text, and the word for verdicts of a quick run."""
BELOW_BASELINE = "below_baseline"
"""Column of tags of heads whose hit rate is below the baseline's."""
HARD_COLUMNS = (
    "hard_n",
    "hard_rate",
    "hard_low",
    "hard_high",
    "easy_rate",
    "hard_baseline_rate",
)
"""Columns of the comparison at hard queries; see `headscope.statistics.estimates`."""
TEXT_COLUMNS = {
    "hard_n": "text_hard_n",
    "hard_rate": "text_hard_rate",
    "hard_low": "text_hard_low",
    "hard_high": "text_hard_high",
    "hard_baseline_rate": "text_hard_baseline_rate",
}
"""Columns of the same comparison at the hard queries of the run's text, without the challenge
set."""
TEXT_VERDICT = "text_verdict"
"""Column of the verdict that these columns lead to."""
TOP_COLUMNS = ("top_rate", "top_low", "top_high")
"""Columns of the comparison with every token; see `headscope.statistics.estimates.TopRate`."""
NEWEST_COLUMNS = (*TOP_COLUMNS, "text_hard_n", "text_hard_rate", TEXT_VERDICT)
"""Columns of the evidence that earlier runs lack."""
EVIDENCE_COLUMNS = [
    *("layer", "head", "type", "relation"),
    *("n", "mass", "control", "lift", "ci_low", "ci_high", "q_value"),
    *("matched_control", "chance", "hit_rate", "baseline", "baseline_rate"),
    *HARD_COLUMNS,
    *TOP_COLUMNS,
    *("text_hard_n", "text_hard_rate", TEXT_VERDICT),
    *SURROGATE_COLUMNS,
    *("mass_error", "control_error", "verdict", "tagged", REPLICATES),
    GENERAL,
    PRELIMINARY,
]
"""A row per head and relation."""

HEAD_COLUMNS = [
    *("layer", "head", "primary", "tags", "relation"),
    *("control", "lift", "ci_low", "ci_high", "q_value"),
    *("first_token_mass", "entropy", "mean_distance", "variability", "shape"),
    *("reason", "kv_group", "mass", "direct_effects", "direct_effect_lift", "sink_share"),
    *(PRELIMINARY, BELOW_BASELINE, REPLICATES),
]
"""A row per head."""
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
    *("threshold", "tagged", REPLICATES),
]
"""A row per head and effect."""
EFFECT_NAMES = {"relation": "effect", "mass": "on"}
"""Columns of the evidence by their names in the table of effects."""
FEATURE_MODEL_COLUMNS = [
    *("layer", "head", "explained", "place", "feature", "kind", "queries"),
    *("weight", "unique", "ci_low", "ci_high"),
]
"""A row per head and feature of its rule."""
SCORE_COLUMNS = ["iou", "correlation", "explained_rest", "iou_rest", "correlation_rest"]
"""After those of `feature_model.csv`."""


def rows_of_head(table: pd.DataFrame, layer: int, head: int) -> pd.DataFrame:
    """The rows of a table that are of one head, by its columns `layer` and `head`."""
    return table[(table["layer"] == layer) & (table["head"] == head)]


def strongest_effects_first(effects: pd.DataFrame) -> pd.Index:
    """Rows of a table of effects, the largest lifts in units of their thresholds first."""
    strength = (effects["lift"].abs() / effects["threshold"]).fillna(0.0)
    return strength.sort_values(ascending=False, kind="stable").index
