"""What was written for HeadVis."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class HeadVis(Study):
    """A folder that the HeadVis frontend reads, with the numbers of its scatter."""

    model: str
    folder: Path
    """The `data` folder."""
    heads: pd.DataFrame
    """A row per head with HeadVis' metrics and headscope's own; what is empty is in no file."""
    told: dict[str, str]
    """The words of each metric's tooltip."""
    sequences: int
    tokens: int
    clouds: int
    """Heads with a cloud of their queries, keys, outputs and values."""
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """The rows of `scatter_data.json`."""
        return self.heads

    def figure(self) -> Figure:
        """HeadVis' scatter of two metrics; see `view.headvis_figure`."""
        from headscope.studies.headvis.view import headvis_figure

        return headvis_figure(self)

    def __repr__(self) -> str:
        return (
            f"<headscope data for HeadVis of {self.model}: {len(self.heads)} heads on "
            f"{self.sequences} sequences, in {str(self.folder)!r}>"
        )
