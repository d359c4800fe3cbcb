"""A tag's three legs side by side: which heads look, write and matter, type by type."""

from __future__ import annotations

import pandas as pd

from headscope.heads import head_name
from headscope.relations import head_types
from headscope.statistics.causes import BREAKS, UNTESTED
from headscope.statistics.result import Result

LEG_COLUMNS = ["layer", "head", "type", "looks", "writes", "matters"]
"""A row per head and type that it is tagged with on either leg."""
NOT_ASKED = "not asked"
"""What a leg says that the run did not measure; a type that is no place to look, or writes nothing
of its own, has no such leg, and that is empty."""
COUNTS = ["type", "look", "write", "look and write", "look, tested", "look and break"]


def legs(run: Result) -> pd.DataFrame:
    """Verdicts of each leg for each head and type.

    Returns:
        A row per head and type that has the tag by looking or by writing; a type at rest has none.
        `looks` and `writes` are `yes` or `no`, `not asked` where that was not measured, and empty
        where the type is not of that leg. `matters` is the best verdict of silencing the edges of
        the head's relations of that type, or `not asked`.
    """
    functional = {name: kind.functional for name, kind in head_types().items()}
    attending = {
        head_type for head_type in _tagged(run.evidence) if functional.get(head_type[2], True)
    }
    wrote = set() if run.effects is None else _tagged(run.effects)
    of_looks = set(run.evidence["type"])
    of_writes = set() if run.effects is None else set(run.effects["type"])
    rows = []
    for layer, head, kind in sorted(attending | wrote):
        head_type = (layer, head, kind)
        attends = "" if kind not in of_looks else "yes" if head_type in attending else "no"
        writes = NOT_ASKED if run.effects is None else "" if kind not in of_writes else "no"
        rows.append(
            (*head_type, attends, "yes" if head_type in wrote else writes, _matters(run, head_type))
        )
    return pd.DataFrame(rows, columns=LEG_COLUMNS)


def legs_counted(table: pd.DataFrame) -> pd.DataFrame:
    """Counts of each type's heads that look, write, do both, and break when they stop to look.

    Nothing stands where a type has no such leg, or the run did not ask.
    """
    rows = []
    for kind, rows_of_type in table.groupby("type", sort=True):
        attends, writes = rows_of_type["looks"] == "yes", rows_of_type["writes"] == "yes"
        tested = attends & ~rows_of_type["matters"].isin([UNTESTED, NOT_ASKED])
        breaks = attends & (rows_of_type["matters"] == BREAKS)
        has_attention, wrote = (
            (rows_of_type["looks"] != "").any(),
            rows_of_type["writes"].isin(["yes", "no"]).any(),
        )
        counts = (attends, writes, attends & writes, tested, breaks)
        known = (has_attention, wrote, has_attention and wrote, has_attention, has_attention)
        pairs = zip(counts, known, strict=True)
        rows.append((kind, *(int(flags.sum()) if is_known else pd.NA for flags, is_known in pairs)))
    return pd.DataFrame(rows, columns=COUNTS)


def disagreements(table: pd.DataFrame, run: Result) -> dict[str, list[str]]:
    """Names of the heads with only one of two legs, of types with both, by what they do."""
    both = (table["looks"] != "") & (table["writes"] != "") & (table["writes"] != NOT_ASKED)
    rows = table[both]
    kinds = {
        "looks and does not write": (rows["looks"] == "yes") & (rows["writes"] == "no"),
        "writes and does not look": (rows["looks"] == "no") & (rows["writes"] == "yes"),
    }
    return {
        description: [
            f"{head_name(row.layer, row.head)} ({row.type})" for row in rows[mask].itertuples()
        ]
        for description, mask in kinds.items()
    }


def _tagged(table: pd.DataFrame) -> set[tuple[int, int, str]]:
    tagged = table[table["tagged"].astype(bool)]
    return {(int(row.layer), int(row.head), str(row.type)) for row in tagged.itertuples()}


def _matters(run: Result, head_type: tuple[int, int, str]) -> str:
    if run.causes is None:
        return NOT_ASKED
    layer, head, kind = head_type
    rows = run.causes
    rows = rows[(rows["kind"] == "tag") & (rows["type"] == kind)]
    verdicts = rows.loc[(rows["layer"] == layer) & (rows["head"] == head), "verdict"].astype(str)
    words = [verdict.split(":")[0] for verdict in verdicts]
    tested = [word for word in words if word != UNTESTED]
    if not words:
        return NOT_ASKED
    return UNTESTED if not tested else BREAKS if BREAKS in tested else tested[0]
