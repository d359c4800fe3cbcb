"""Runs side by side as one HTML page without scripts, in the report's style."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.heads import HeadNames, head_name
from headscope.printing import visible
from headscope.statistics.result import layers_of
from headscope.statistics.tags import NO_TYPE
from headscope.views.html_page import fill_page

if TYPE_CHECKING:
    from headscope.studies.compare.compare_result import Comparison

MAX_RELATIONS = 200
"""Rows of the differences by relation, the largest; all are in the CSV."""


def compare_html(comparison: Comparison) -> str:
    """A comparison as one HTML page that asks no network and runs no script."""
    return fill_page(
        "headscope.studies.compare",
        "page.html",
        "page.css",
        title=" and ".join(comparison.names),
        found=comparison,
        atlases=_atlases(comparison),
        changes=_changes(comparison),
        apart=_apart(comparison),
        correlation=[] if comparison.correlation is None else _rows(comparison.correlation),
        depth=_depth(comparison),
        most=MAX_RELATIONS,
    )


def _atlases(comparison: Comparison) -> list[dict[str, Any]]:
    """Each run's layers of cells; none where shapes differ."""
    if comparison.heads is None:
        return []
    changed = {(row["run"], row["layer"], row["head"]): row for row in _rows(comparison.changed)}
    atlases = []
    for run, name in zip(comparison.runs, comparison.names, strict=True):
        layers: list[list[dict[str, Any]]] = []
        for _, layer_heads in run.heads.sort_values(["layer", "head"]).groupby("layer", sort=True):
            layers.append([_cell(row, changed, name, run.head_names) for row in _rows(layer_heads)])
        rows = [run.head_names.row(number) for number in layers_of(run)]
        atlases.append({"name": name, "layers": layers, "rows": rows})
    return atlases


def _cell(
    row: dict[str, Any], changed: dict[Any, dict[str, Any]], name: str, head_names: HeadNames
) -> dict[str, Any]:
    change = changed.get((name, row["layer"], row["head"]))
    tags = row["tags"].replace(";", ", ") or row["primary"]
    label = f"{head_name(row['layer'], row['head'], head_names)}: {tags}"
    if change:
        label += f"; was {change['primary_first']}"
    strength = 0.0 if row["primary"] in NO_TYPE else min(1.0, max(0.0, row["lift"]))
    return {
        "primary": row["primary"],
        "said": visible(label),
        "strength": f"{strength:.2f}",
        "change": "" if not change else "sure" if change["sure"] else "unsure",
    }


def _changes(comparison: Comparison) -> list[dict[str, Any]]:
    rows = _rows(comparison.changed)
    for row in rows:
        row["name"] = head_name(row["layer"], row["head"], comparison.runs[0].head_names)
        sure = row["sure"].split(";")
        for side in ("gained", "lost"):
            tags = [tag for tag in row[side].split(";") if tag]
            row[side] = ", ".join(tag + "*" * (tag in sure) for tag in tags)
    return sorted(rows, key=lambda row: row["sure"] == "")


def _apart(comparison: Comparison) -> list[dict[str, Any]]:
    """The largest differences of lift whose intervals are apart."""
    if comparison.relations is None:
        return []
    apart = comparison.relations[comparison.relations["apart"]]
    order = apart["lift_difference"].abs().sort_values(ascending=False, kind="stable").index
    rows = _rows(apart.loc[order].head(MAX_RELATIONS))
    head_names = comparison.runs[0].head_names
    return [{**row, "name": head_name(row["layer"], row["head"], head_names)} for row in rows]


def _depth(comparison: Comparison) -> list[dict[str, Any]]:
    """A row per run and stretch of depth, with the share of each type."""
    rows = []
    stretches = comparison.depth.groupby(["run", "depth_low", "depth_high"], sort=False)
    for (run, low, high), group in stretches:
        shares = dict(zip(group["type"], group["share"], strict=True))
        heads = int(group["heads"].iloc[0])
        rows.append({"run": run, "low": low, "high": high, "heads": heads, "shares": shares})
    return rows


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_dict("records")
    return rows
