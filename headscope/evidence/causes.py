"""What silencing heads did, in words."""

from __future__ import annotations

import pandas as pd

CAUSE_COLUMNS = [
    "kind", "layer", "head", "type", "heads", "behaviour", "how", "n", "clean", "ablated",
    "effect", "ci_low", "ci_high", "control", "control_low", "control_high", "agrees",
]  # fmt: skip
BEHAVIOURS = {
    "repeat": ("the log-probability of repeated tokens", "nats per token"),
    "agreement": ("the log-odds of the verb that agrees", "nats"),
    "pronoun": ("the log-odds of the pronoun that agrees", "nats"),
    "near": ("the log-probability of what follows its queries", "nats per token"),
    "away": ("the log-probability of all other tokens", "nats per token"),
}


def cause_lines(table: pd.DataFrame, layer: int, head: int) -> list[str]:
    """What silencing a head does to what its types predict, a sentence each."""
    own = table[(table["kind"] == "head") & (table["layer"] == layer) & (table["head"] == head)]
    away = own[own["behaviour"] == "away"].set_index("type")["effect"]
    lines = []
    for row in own[own["behaviour"] != "away"].to_dict("records"):
        what, unit = BEHAVIOURS[row["behaviour"]]
        line = (
            f"{row['type']}: silencing it ({row['how']}) changes {what} from {row['clean']:.2f} "
            f"to {row['ablated']:.2f}: {row['effect']:+.3f} {unit} "
            f"[{row['ci_low']:+.3f}, {row['ci_high']:+.3f}]"
        )
        if row["type"] in away:
            line += f", elsewhere {away[row['type']]:+.3f}"
        if pd.notna(row["control"]):
            line += f"; random heads of its layer {row['control']:+.3f}"
        verdict = "pattern and cause agree" if row["agrees"] else "no cause was shown"
        lines.append(f"{line}: {verdict}")
    return lines
