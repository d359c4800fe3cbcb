"""What every study hands back: a table, a picture of it, and the way to a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from headscope.arguments import takes
from headscope.errors import WriteError
from headscope.runs.folder import check_foreign, encoded
from headscope.runs.tables import table_to_csv
from headscope.runs.write import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 20
"""Rows of the table that a notebook shows."""


class Study(ABC):
    """What a study of a run or of a model found."""

    @property
    @abstractmethod
    def table(self) -> pd.DataFrame:
        """What was found as one DataFrame; the class says what a row is."""

    @abstractmethod
    def figure(self) -> Figure:
        """What was found as a matplotlib figure."""

    def csv(self) -> str:
        """The table as CSV, the text that `save` writes."""
        return table_to_csv(self.table)

    @takes()
    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the table to a .csv file, whole or not at all.

        Args:
            path: the file; folders above it are made.
            overwrite: replace a file that is there, but never one that belongs to a run.

        Raises:
            WriteError: another suffix, a file that is there already, or one of a run.
        """
        target = Path(path)
        if target.suffix.lower() != ".csv":
            raise WriteError(
                f"{target!s:.200}: a table is written as .csv; for another format take .table, "
                "a pandas DataFrame, and for a picture .figure().savefig"
            )
        check_foreign(target)
        return write_file(target, encoded(self.csv()), overwrite=overwrite)

    def _repr_html_(self) -> str:
        """The first and the last rows of the table, for a notebook."""
        return str(self.table.to_html(max_rows=ROWS, show_dimensions=True))
