"""What `headscope redundancy` prints: heads, clusters, groups of pairs, and tests."""

from __future__ import annotations

from math import isnan

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.studies.redundancy.result import Redundancy
from headscope.views.tables import plain_table

NAMED = 8
"""Heads of a cluster that are named."""


def redundancy_lines(found: Redundancy) -> RenderableType:
    """Heads from the most redundant on, clusters, groups of pairs, tests, and notes.

    The heads come first: where they are many, what is said of all of them ends on the screen.
    """
    title = (
        f"{found.model}: {len(found.heads)} heads, {found.queries} queries of {found.windows} "
        "windows; distances in bits, from 0 (same pattern) to 1 (no key in common)"
    )
    parts = [Text(title, style="bold"), Text(), _heads(found), Text(), _clusters(found), Text()]
    parts += [_groups(found)]
    if len(found.tests):
        parts += [Text(), _tests(found)]
    parts += [Text(f"note: {note}", style="yellow") for note in found.notes]
    return Group(*parts)


def _heads(found: Redundancy) -> Table:
    table = plain_table(
        "head", "distance", "cluster", "nearest", "primary", right=("distance", "cluster")
    )
    for row in found.heads.sort_values("distance", kind="stable").itertuples():
        name = head_name(row.layer, row.head)
        table.add_row(name, f"{row.distance:.3f}", str(row.cluster), row.nearest, row.primary)
    return table


def _clusters(found: Redundancy) -> RenderableType:
    table = plain_table("cluster", "heads", "primary", "which", whole=("cluster",))
    for number, own in found.heads.groupby("cluster", sort=True):
        types = ", ".join(f"{n} {name}" for name, n in own["primary"].value_counts().items())
        names = [head_name(row.layer, row.head) for row in own.itertuples()]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        table.add_row(str(number), str(len(own)), types, ", ".join(names[:NAMED]) + more)
    return Group(table, Text(_clear(found.silhouette), style="dim"))


def _clear(silhouette: float) -> str:
    if isnan(silhouette):
        return "one cluster: there is nothing to tell apart"
    told = "clear" if silhouette > 0.5 else "weak" if silhouette >= 0.25 else "hardly any"
    return f"silhouette {silhouette:.2f}: {told} clusters"


def _groups(found: Redundancy) -> Table:
    table = plain_table(
        "pairs of heads",
        "pairs",
        "mean distance",
        "95 %",
        right=("pairs", "mean distance"),
        whole=("pairs of heads",),
    )
    for row in found.groups.itertuples():
        interval = _interval(row.ci_low, row.ci_high)
        table.add_row(row.group, f"{row.pairs:,}", f"{row.mean:.3f}", interval)
    return table


def _tests(found: Redundancy) -> Table:
    titles = ("test", "difference", "95 %", "p", "labels shuffled over")
    table = plain_table(*titles, right=("difference", "p"), whole=("test",))
    for row in found.tests.itertuples():
        interval = _interval(row.ci_low, row.ci_high)
        p_value = f"{row.p_value:.3f}"
        table.add_row(row.test, f"{row.difference:.3f}", interval, p_value, row.shuffled)
    return table


def _interval(low: float, high: float) -> str:
    return "–" if isnan(low) else f"{low:.3f} … {high:.3f}"
