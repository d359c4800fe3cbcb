"""`emergence`: from a sweep's folder to its heads by revision."""

from __future__ import annotations

from pathlib import Path

from headscope.arguments import PATH, Kind, either, made_by, takes
from headscope.studies.sweep.counts import by_revision
from headscope.studies.sweep.sweep_cells import read_sweep_cells
from headscope.studies.sweep.sweep_result import Emergence, Sweep

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
