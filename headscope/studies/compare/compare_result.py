"""Runs side by side: the tables, and what is drawn of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from headscope.errors import RunError
from headscope.statistics.result import Result
from headscope.studies.compare.changes import changed
from headscope.views.study import Study, values_to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = ("heads", "relations", "correlation", "depth")


@dataclass(frozen=True, eq=False)
class Comparison(Study):
    """Runs side by side. Each is compared with the first where all have the same shape."""

    runs: tuple[Result, ...]
    names: tuple[str, ...]
    """What the tables call the runs, each another name."""
    types: tuple[str, ...]
    """The types of the runs, `unclassified` the last."""
    depth: pd.DataFrame
    """Shares of heads; see `headscope.studies.compare.depth.depth_shares`."""
    heads: pd.DataFrame | None
    """A row per head and run but the first; see `changes.head_changes`. None
    where the shapes differ: head 3 of one model has nothing to do with head 3 of another."""
    relations: pd.DataFrame | None
    """A row per head × relation; see `headscope.studies.compare.changes.relation_changes`."""
    correlation: pd.DataFrame | None
    """A row per relation; see `headscope.studies.compare.changes.correlations`."""
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """`heads` where the runs have the same shape, and else `depth`."""
        return self.depth if self.heads is None else self.heads

    @property
    def changed(self) -> pd.DataFrame:
        """The rows of `heads` that have another primary type or other tags; none of no `heads`."""
        return pd.DataFrame() if self.heads is None else self.heads[changed(self.heads)]

    def choose(self, name: str | None) -> pd.DataFrame:
        """A table by its name; by default `heads`, or `depth` where shapes differ.

        Raises:
            RunError: runs of different shapes have no such table.
        """
        table: pd.DataFrame | None = self.table if name is None else getattr(self, name)
        if table is None:
            raise RunError(f"runs of different shapes have no table {name!r}; they have 'depth'")
        return table

    def json(self) -> str:
        """All tables as one object; one that there is not is null, and so is a missing number."""
        tables = {name: getattr(self, name) for name in TABLES}
        return values_to_json({"runs": self.names, "notes": self.notes}, tables)

    def figure(self) -> Figure:
        """Shares by depth, and atlases with changed heads framed; see `figure`."""
        from headscope.studies.compare.figure import compare_figure

        return compare_figure(self)

    def html(self) -> str:
        """One self-contained HTML page; see `headscope.studies.compare.compare_page`."""
        from headscope.studies.compare.compare_page import compare_html

        return compare_html(self)

    def __repr__(self) -> str:
        return f"<headscope comparison of {', '.join(self.names)}: {len(self.changed)} changes>"
