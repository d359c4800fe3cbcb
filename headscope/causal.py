"""A run's table of causes: kept beside its evidence, and put into words."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rich.table import Table

from headscope.errors import RunError

CAUSES = "causal.csv"
BEHAVIOURS = {
    "repeat": ("the log-probability of repeated tokens", "nats per token"),
    "agreement": ("the log-odds of the verb that agrees", "nats"),
    "pronoun": ("the log-odds of the pronoun that agrees", "nats"),
    "near": ("the log-probability of what follows its queries", "nats per token"),
    "away": ("the log-probability of all other tokens", "nats per token"),
}
_TEXT = ("kind", "type", "heads", "behaviour", "how")
_COUNTS = ("layer", "head", "n")


def write_causes(table: pd.DataFrame, folder: Path) -> Path:
    """Write `causal.csv` into a run folder, whole or not at all.

    Raises:
        RunError: the folder cannot be written.
    """
    path = folder / CAUSES
    beside = path.with_suffix(".new")
    try:
        table.to_csv(beside, index=False, float_format="%.6g", lineterminator="\n")
        beside.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def read_causes(folder: Path) -> pd.DataFrame | None:
    """The table of a run folder; None where `headscope ablate` has not been run.

    Raises:
        RunError: the file is no such table.
    """
    path = folder / CAUSES
    if not path.is_file():
        return None
    types = dict.fromkeys(_TEXT, "str") | dict.fromkeys(_COUNTS, "Int64") | {"agrees": "bool"}
    try:
        table = pd.read_csv(path, dtype=types)
        table["effect"].astype(float), table["control"].astype(float)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise RunError(f"{path}: this table is damaged: {error}") from error
    return table


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


def causes_table(table: pd.DataFrame) -> Table:
    """The types together, then the heads, as the terminal shows them."""
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("type", "heads", "behaviour"):
        shown.add_column(column)
    for column in ("clean", "ablated", "effect", "95 %", "random heads", "ratio"):
        shown.add_column(column, justify="right")
    shown.add_column("agrees")
    order = table.assign(first=table["kind"] != "type").sort_values("first", kind="stable")
    for row in order.to_dict("records"):
        count = row["heads"].count(";") + 1
        ratio = row["effect"] / row["control"] if row["control"] else float("nan")
        shown.add_row(
            row["type"],
            row["heads"] if row["kind"] == "head" else f"all {count}",
            row["behaviour"],
            f"{row['clean']:.2f}", f"{row['ablated']:.2f}", f"{row['effect']:+.3f}",
            f"{row['ci_low']:+.3f} … {row['ci_high']:+.3f}",
            "" if pd.isna(row["control"]) else f"{row['control']:+.3f}",
            f"{ratio:.1f}" if row["kind"] == "type" and row["behaviour"] != "away" else "",
            "" if row["behaviour"] == "away" else ("yes" if row["agrees"] else "no"),
        )  # fmt: skip
    return shown
