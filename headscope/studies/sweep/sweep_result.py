"""The runs of a sweep, and how their heads come and go from revision to revision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.arguments import PATH, Kind, either, made_by, takes
from headscope.relations import head_types
from headscope.settings import not_default
from headscope.statistics.tags import UNCLASSIFIED
from headscope.studies.sweep.counts import by_revision
from headscope.studies.sweep.sweep_cells import (
    COMPLETE,
    Cell,
    cell_table,
    counted_types,
    measured_types,
    read_sweep_cells,
)
from headscope.views.figure_style import outside_legend
from headscope.views.study import Study
from headscope.views.tables import number_text, plain_table

LOG_FROM = 20
"""How many times the first step the last one is where steps are drawn on a logarithmic axis."""


@dataclass(frozen=True, eq=False)
class Emergence(Study):
    """Heads of each type at each revision of a sweep; `table` is `counts`."""

    main_table: ClassVar[str] = "counts"

    counts: pd.DataFrame
    """A row per model, corpus, revision and type; see `headscope.studies.sweep.counts`."""

    def figure(self) -> Figure:
        """Heads of each type by revision, a panel for each model and corpus.

        Steps are drawn to scale, from a wide range on by their logarithm; revisions that are no
        steps stand side by side. A type has no mark where it was not measured, and no line if it
        never was.
        """
        panels = list(self.counts.groupby(["model", "corpus"], sort=False))
        size = (5.6, 0.4 + 2.8 * len(panels))
        figure = Figure(figsize=size, layout="constrained")
        for axes, ((model, corpus), counts) in zip(
            figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True
        ):
            _panel(axes, counts)
            names = [Path(str(model).rstrip("/")).name]
            names += [Path(path).stem for path in str(corpus).split(";") if path]
            axes.set_title(" · ".join(names).replace("$", r"\$"), fontsize=9)
        return figure

    def __repr__(self) -> str:
        revisions = self.counts["revision"].nunique()
        return f"<headscope emergence: {revisions} revisions of {self.counts['model'].nunique()}>"


@dataclass(frozen=True, eq=False)
class Sweep(Study):
    """The runs of a sweep, complete or failed."""

    out: Path
    """The sweep's folder, which holds the run folders."""
    cells: Sequence[Cell]
    """What was asked for, each with its outcome."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What its runs share that is not the default."""

    @property
    def table(self) -> pd.DataFrame:
        """A row per run as in `sweep.csv`: heads of each type, and the `error` of what failed."""
        return cell_table(self.cells)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The run folders that are complete, to be loaded or compared."""
        return tuple(self.out / cell.folder for cell in self.cells if not cell.error)

    def emergence(self) -> Emergence:
        """Heads of each type at each revision.

        Raises:
            RunError: no run is complete.
        """
        return Emergence(by_revision(self.cells))

    def figure(self) -> Figure:
        """As that of `emergence`."""
        return self.emergence().figure()

    def __repr__(self) -> str:
        failed = sum(bool(cell.error) for cell in self.cells)
        return f"<headscope sweep in {self.out}: {len(self.cells)} runs, {failed} failed>"


def sweep_lines(cells: Sequence[Cell], settings: Mapping[str, Any]) -> RenderableType:
    """A row per run with its heads per type, what is not the default, and what failed and why.

    Types that no run was asked for are left out: a table of all is wider than a terminal.
    """
    known = measured_types(cells)
    types = [name for name in counted_types(known) if name in known]
    table = plain_table("run", "heads", *types)
    for cell in cells:
        if cell.status == COMPLETE:
            counts = [number_text(cell.counts.get(name), "") for name in types]
            table.add_row(cell.folder, number_text(cell.heads, ""), *counts)
    failed = [cell for cell in cells if cell.error]
    parts: list[RenderableType] = [table] if len(failed) < len(cells) else []
    if words := not_default(dict(settings)):
        parts.append(Text(f"not the default: {words}"))
    if failed:
        parts.append(Text(f"\n{len(failed)} of {len(cells)} runs failed:", style="yellow"))
        parts += [Text(f"  {cell}: {cell.error}") for cell in failed]
    return Group(*parts)


def emergence_lines(table: pd.DataFrame) -> RenderableType:
    """A row per revision with its heads per type, for each model and corpus."""
    parts: list[RenderableType] = []
    for (model, corpus), rows_of_model in table.groupby(["model", "corpus"], sort=False):
        title = " on ".join(part for part in (str(model), str(corpus)) if part)
        known = set(rows_of_model.loc[rows_of_model["heads"].notna(), "type"])
        types = [name for name in counted_types(known) if name in known]
        counts_table = plain_table("revision", "heads", *types)
        for revision, rows in rows_of_model.groupby("revision", sort=False):
            counts = dict(zip(rows["type"], rows["heads"], strict=True))
            total = str(rows["all_heads"].iloc[0])
            counts_table.add_row(
                str(revision) or "–", total, *(number_text(counts[name], "") for name in types)
            )
        parts += [Text(f"{title}: heads that hold a tag of each type", style="bold"), counts_table]
        parts += [Text(_firsts(rows_of_model), style="bold"), Text()]
    return Group(*parts[:-1])


def _firsts(counts: pd.DataFrame) -> str:
    """At which revision each type is first held by a head; those of no head last."""
    firsts: dict[str, list[str]] = {}
    for name, rows in counts[counts["type"] != UNCLASSIFIED].groupby("type", sort=False):
        measured = rows[rows["heads"].notna()]
        held = measured[measured["heads"] > 0]
        if len(measured):
            where = f"at {held['revision'].iloc[0] or 'the only revision'}" if len(held) else ""
            firsts.setdefault(where or "never", []).append(str(name))
    return "first held " + "; ".join(
        f"{where}: {', '.join(counts)}" for where, counts in firsts.items()
    )


def _panel(axes: Axes, counts: pd.DataFrame) -> None:
    first = counts[counts["type"] == UNCLASSIFIED]
    steps = first["step"].tolist()
    # names that share a number, such as two branches of a step, have no place of their own
    to_scale = bool(first["step"].notna().all()) and len(set(steps)) == len(steps) > 1
    positions = [int(step) for step in steps] if to_scale else list(range(len(steps)))
    for name, kind in head_types().items():
        heads = counts.loc[counts["type"] == name, "heads"].astype(float)
        if heads.notna().any():
            axes.plot(
                positions,
                heads.tolist(),
                marker=kind.marker,
                ms=3.5,
                lw=1.2,
                color=kind.colour,
                label=name,
            )
    if to_scale:
        above = [step for step in positions if step > 0]
        if above[-1] >= LOG_FROM * above[0]:
            # step 0 has no logarithm: up to the first step the axis is linear
            axes.set_xscale("symlog", linthresh=above[0], linscale=0.5)
        axes.set_xlabel("step")
    else:
        names = [str(name) or "–" for name in first["revision"]]
        axes.set_xticks(positions, names, rotation=45, ha="right", fontsize=7)
        axes.set_xlabel("revision")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(f"heads with a tag, of {int(first['all_heads'].max())}")
    outside_legend(axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0)))


A_SWEEP = either(Kind("a sweep's folder", PATH.plain), made_by("what hs.sweep returns", Sweep))


@takes(sweep=A_SWEEP)
def emergence(sweep: str | Path | Sweep) -> Emergence:
    """Count the heads of each type at each revision of a sweep, e.g. along its training.

    Args:
        sweep: a sweep's folder, or what `headscope.sweep` returned.

    Raises:
        RunError: no sweep there, a damaged one, or one of which no run is complete.
    """
    if isinstance(sweep, Sweep):
        return sweep.emergence()
    return Emergence(by_revision(read_sweep_cells(Path(sweep))))
