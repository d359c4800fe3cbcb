"""The runs of a sweep, and how their heads come and go from revision to revision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.studies.sweep.counts import by_revision
from headscope.studies.sweep.sweep_cells import Cell, cell_table
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Emergence(Study):
    """Heads of each type at each revision of a sweep; `table` is `counts`."""

    counts: pd.DataFrame
    """See `headscope.studies.sweep.counts.by_revision`."""

    @property
    def table(self) -> pd.DataFrame:
        """A row per model, corpus, revision and type."""
        return self.counts

    def figure(self) -> Figure:
        """Heads of each type by revision, a panel for each model and corpus."""
        from headscope.studies.sweep.sweep_view import emergence_figure

        return emergence_figure(self.counts)

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

    def film(self) -> str:
        """Its atlases along the revisions as one HTML page with a slider.

        Raises:
            RunError: no run is complete, or revisions have different shapes.
        """
        from headscope.studies.sweep.film import film_html

        return film_html(self.out, self.cells)

    def figure(self) -> Figure:
        """As that of `emergence`."""
        return self.emergence().figure()

    def __repr__(self) -> str:
        failed = sum(bool(cell.error) for cell in self.cells)
        return f"<headscope sweep in {self.out}: {len(self.cells)} runs, {failed} failed>"
