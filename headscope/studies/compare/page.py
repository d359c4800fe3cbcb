"""Runs side by side as one HTML page without scripts, in the report's style."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment

from headscope.corpus.visible import visible
from headscope.evidence.result import layers_of
from headscope.evidence.tags import UNCLASSIFIED
from headscope.heads import Stacks, head_name
from headscope.views.colours import letter, type_class, type_style

if TYPE_CHECKING:
    from headscope.studies.compare.result import Comparison

MOST = 200
"""Rows of the differences by relation, the largest; all are in the CSV."""


def compare_html(found: Comparison) -> str:
    """A comparison as one HTML page that asks no network and runs no script."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"letter": letter, "type_class": type_class, "visible": visible}
    environment.tests["missing"] = pd.isna
    template = environment.from_string(_file("headscope.studies.compare", "page.html"))
    return template.render(
        title=" and ".join(found.names),
        style=type_style()
        + "\n"
        + _file("headscope.views.report", "report.css")
        + _file("headscope.studies.compare", "page.css"),
        found=found,
        atlases=_atlases(found),
        changes=_changes(found),
        apart=_apart(found),
        correlation=[] if found.correlation is None else _rows(found.correlation),
        depth=_depth(found),
        most=MOST,
    )


def _atlases(found: Comparison) -> list[dict[str, Any]]:
    """Each run's layers of cells; none where shapes differ."""
    if found.heads is None:
        return []
    changed = {(row["run"], row["layer"], row["head"]): row for row in _rows(found.changed)}
    atlases = []
    for run, name in zip(found.runs, found.names, strict=True):
        layers: list[list[dict[str, Any]]] = []
        for _, own in run.heads.sort_values(["layer", "head"]).groupby("layer", sort=True):
            layers.append([_cell(row, changed, name, run.stacks) for row in _rows(own)])
        rows = [run.stacks.row(number) for number in layers_of(run)]
        atlases.append({"name": name, "layers": layers, "rows": rows})
    return atlases


def _cell(
    row: dict[str, Any], changed: dict[Any, dict[str, Any]], name: str, stacks: Stacks
) -> dict[str, Any]:
    change = changed.get((name, row["layer"], row["head"]))
    tags = row["tags"].replace(";", ", ") or row["primary"]
    said = f"{head_name(row['layer'], row['head'], stacks)}: {tags}"
    if change:
        said += f"; was {change['primary_first']}"
    strength = 0.0 if row["primary"] == UNCLASSIFIED else min(1.0, max(0.0, row["lift"]))
    return {
        "primary": row["primary"],
        "said": visible(said),
        "strength": f"{strength:.2f}",
        "change": "" if not change else "sure" if change["sure"] else "unsure",
    }


def _changes(found: Comparison) -> list[dict[str, Any]]:
    rows = _rows(found.changed)
    for row in rows:
        row["name"] = head_name(row["layer"], row["head"], found.runs[0].stacks)
        sure = row["sure"].split(";")
        for side in ("gained", "lost"):
            tags = [tag for tag in row[side].split(";") if tag]
            row[side] = ", ".join(tag + "*" * (tag in sure) for tag in tags)
    return sorted(rows, key=lambda row: row["sure"] == "")


def _apart(found: Comparison) -> list[dict[str, Any]]:
    """The largest differences of lift whose intervals are apart."""
    if found.relations is None:
        return []
    apart = found.relations[found.relations["apart"]]
    order = apart["lift_difference"].abs().sort_values(ascending=False, kind="stable").index
    rows = _rows(apart.loc[order].head(MOST))
    stacks = found.runs[0].stacks
    return [{**row, "name": head_name(row["layer"], row["head"], stacks)} for row in rows]


def _depth(found: Comparison) -> list[dict[str, Any]]:
    """A row per run and stretch of depth, with the share of each type."""
    rows = []
    stretches = found.depth.groupby(["run", "depth_low", "depth_high"], sort=False)
    for (run, low, high), own in stretches:
        shares = dict(zip(own["type"], own["share"], strict=True))
        heads = int(own["heads"].iloc[0])
        rows.append({"run": run, "low": low, "high": high, "heads": heads, "shares": shares})
    return rows


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_dict("records")
    return rows


@cache
def _file(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")
