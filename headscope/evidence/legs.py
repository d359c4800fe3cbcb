"""A tag's three legs side by side: which heads look, write and matter, type by type."""

from __future__ import annotations

import pandas as pd

from headscope.evidence.causes import BREAKS, UNTESTED
from headscope.evidence.result import Result
from headscope.heads import head_name
from headscope.relations import head_types

LEG_COLUMNS = ["layer", "head", "type", "looks", "writes", "matters"]
"""A row per head and type that it is tagged with on either leg."""
NOT_ASKED = "not asked"
"""What a leg says that the run did not measure; a type that is no place to look, or writes nothing
of its own, has no such leg, and that is empty."""
COUNTS = ["type", "look", "write", "do both", "look, tested", "look and break"]


def legs(run: Result) -> pd.DataFrame:
    """Of each head and type what each leg says.

    Returns:
        A row per head and type that has the tag by looking or by writing; a type at rest has none.
        `looks` and `writes` are `yes` or `no`, `not asked` where that was not measured, and empty
        where the type is not of that leg. `matters` is the best verdict of silencing the edges of
        the head's relations of that type, or `not asked`.
    """
    functional = {name: kind.functional for name, kind in head_types().items()}
    looked = {own for own in _tagged(run.evidence) if functional.get(own[2], True)}
    wrote = set() if run.effects is None else _tagged(run.effects)
    of_looks = set(run.evidence["type"])
    of_writes = set() if run.effects is None else set(run.effects["type"])
    rows = []
    for layer, head, kind in sorted(looked | wrote):
        own = (layer, head, kind)
        looks = "" if kind not in of_looks else "yes" if own in looked else "no"
        writes = NOT_ASKED if run.effects is None else "" if kind not in of_writes else "no"
        rows.append((*own, looks, "yes" if own in wrote else writes, _matters(run, own)))
    return pd.DataFrame(rows, columns=LEG_COLUMNS)


def legs_counted(table: pd.DataFrame) -> pd.DataFrame:
    """How many heads of each type look, write, do both, and break when they stop to look.

    Nothing stands where a type has no such leg, or the run did not ask.

    Args:
        table: from `legs`.
    """
    rows = []
    for kind, own in table.groupby("type", sort=True):
        looks, writes = own["looks"] == "yes", own["writes"] == "yes"
        tested = looks & ~own["matters"].isin([UNTESTED, NOT_ASKED])
        breaks = looks & (own["matters"] == BREAKS)
        looked, wrote = (own["looks"] != "").any(), own["writes"].isin(["yes", "no"]).any()
        counts = (looks, writes, looks & writes, tested, breaks)
        known = (looked, wrote, looked and wrote, looked, looked)
        pairs = zip(counts, known, strict=True)
        rows.append((kind, *(int(each.sum()) if there else pd.NA for each, there in pairs)))
    return pd.DataFrame(rows, columns=COUNTS)


def disagreements(table: pd.DataFrame, run: Result) -> dict[str, list[str]]:
    """By what they do, the names of the heads of types with both legs that have only one of them.

    Args:
        table: from `legs`.
        run: whose heads they are.
    """
    both = (table["looks"] != "") & (table["writes"] != "") & (table["writes"] != NOT_ASKED)
    rows = table[both]
    kinds = {
        "looks and does not write": (rows["looks"] == "yes") & (rows["writes"] == "no"),
        "writes and does not look": (rows["looks"] == "no") & (rows["writes"] == "yes"),
    }
    return {
        said: [
            f"{head_name(row.layer, row.head, run.stacks)} ({row.type})"
            for row in rows[which].itertuples()
        ]
        for said, which in kinds.items()
    }


def _tagged(table: pd.DataFrame) -> set[tuple[int, int, str]]:
    own = table[table["tagged"].astype(bool)]
    return {(int(row.layer), int(row.head), str(row.type)) for row in own.itertuples()}


def _matters(run: Result, own: tuple[int, int, str]) -> str:
    if run.causes is None:
        return NOT_ASKED
    layer, head, kind = own
    rows = run.causes
    rows = rows[(rows["kind"] == "tag") & (rows["type"] == kind)]
    said = rows.loc[(rows["layer"] == layer) & (rows["head"] == head), "verdict"].astype(str)
    words = [verdict.split(":")[0] for verdict in said]
    tested = [word for word in words if word != UNTESTED]
    if not words:
        return NOT_ASKED
    return UNTESTED if not tested else BREAKS if BREAKS in tested else tested[0]
