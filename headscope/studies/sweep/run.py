"""A sweep: cell after cell, each a run folder; what is there is kept, what fails is noted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headscope.arguments import NAME, PATH, maybe, takes, whole
from headscope.errors import HeadscopeError
from headscope.evidence.result import Result
from headscope.evidence.tags import countable_types
from headscope.measure.backend import Backend
from headscope.measure.in_process import InProcess
from headscope.pipeline import classify
from headscope.runs.store import load
from headscope.studies.sweep.cells import (
    COMPLETE,
    FAILED,
    Cell,
    counted,
    is_complete,
    plan_cells,
    where,
)
from headscope.studies.sweep.cells import write_sweep as write
from headscope.studies.sweep.overlap import in_turn
from headscope.studies.sweep.processes import backend_of, workers_of
from headscope.studies.sweep.result import Sweep
from headscope.studies.sweep.spec import Spec, read_spec

Progress = Callable[[int, int], None]
Tell = Callable[[str], None]


@takes(file=maybe(PATH), workers=maybe(whole(0)), address=maybe(NAME))
def sweep(
    file: str | Path | None = None,
    *,
    workers: int | None = 0,
    address: str | None = None,
    progress: Progress = lambda done, total: None,
    tell: Tell = lambda line: None,
    **how: Any,
) -> Sweep:
    """Classify models × revisions × corpora: a run folder each, `sweep.json` and `sweep.csv`.

    What is complete is kept, so that the same call goes on after a stop; what fails is noted.

    Args:
        file: YAML with `models`, `revisions`, `corpora`, `out` and settings of `classify`.
        workers: processes that hold the model, by Ray; 0 for this one alone, None for a core each,
            4 at most.
        address: a running Ray cluster; a local one is started when None.
        progress: called with the tokens done and those of all runs that are left.
        tell: called with a line when a run is done.
        how: the file's keys, in place of what it says or of a file.

    Raises:
        HeadscopeError: the file cannot be read, or holds what no sweep is.
        RunError: the sweep's folder holds another sweep, or cannot be written.
    """
    spec = read_spec(None if file is None else Path(file), **how)
    count, note = workers_of(workers, address)
    if note:
        tell(f"headscope: {note}")
    with backend_of(count, address) as backend:
        return Sweep(spec.out, run_cells(spec, backend=backend, progress=progress, tell=tell))


def run_cells(
    spec: Spec,
    *,
    backend: Backend | None = None,
    progress: Progress = lambda done, total: None,
    tell: Tell = lambda line: None,
) -> list[Cell]:
    """Run every cell that is not complete yet, and keep `sweep.json` and `sweep.csv` up to date.

    Args:
        spec: what to do.
        backend: what loads and reads the models; this process when None.
        progress: called with the tokens done and those of all cells that are left, which are
            reckoned from the cell that is running.
        tell: called with a line when a cell is done.

    Returns:
        The cells that were asked for, those that failed with their error.

    Raises:
        RunError: the sweep's folder holds another sweep, or cannot be written.
    """
    backend = backend or InProcess()
    cells = plan_cells(spec)
    write(spec, cells)
    there = [is_complete(spec, cell) for cell in cells]
    count = _Count(progress, there.count(False))
    waiting = [
        partial(_run, spec, cell, progress=count.of(number)) for number, cell in enumerate(cells)
    ]
    done = []
    with in_turn(backend, waiting) as coming:
        for number, now in enumerate(coming, 1):
            done.append(now)
            write(spec, [now])
            tell(f"{number} of {len(cells)}: {now}: {_outcome(now, there[number - 1])}")
    return done


def _run(spec: Spec, cell: Cell, backend: Backend, *, progress: Progress) -> Cell:
    """The cell with its outcome; a run that is there already is only read."""
    try:
        if is_complete(spec, cell):
            run = load(spec.out / cell.folder)
        else:
            run = _classify(spec, cell, backend, progress)
        return counted(cell, run.heads, countable_types(run.evidence, run.rules))
    except HeadscopeError as error:
        return replace(cell, status=FAILED, error=str(error))
    except Exception as error:  # a model's own code may fail in any way; the others can still run
        said = " ".join(str(error).split())
        return replace(cell, status=FAILED, error=f"{type(error).__name__}: {said:.300}")


def _classify(spec: Spec, cell: Cell, backend: Backend, progress: Progress) -> Result:
    name, revision = where(*cell.loads)
    # all of the text unless told, so that it is the same for all cells
    how = {"all": True, **spec.settings, "revision": revision, "out": spec.out / cell.folder}
    return classify(name, cell.text, progress=progress, backend=backend, **how)


def _outcome(cell: Cell, before: bool) -> str:
    if cell.status != COMPLETE or cell.heads is None:
        return f"failed: {cell.error}"
    tagged = cell.heads - cell.counts["unclassified"]
    return f"{tagged} of {cell.heads} heads tagged{', as it was' if before else ''}"


class _Count:
    """Turns a cell's tokens into those of the sweep; the cells to come count like the last one."""

    def __init__(self, progress: Progress, cells: int) -> None:
        self._progress, self._cells = progress, cells
        self._done: dict[int, int] = {}
        """By the cells that have begun, in their order; one that failed has what was read."""
        self._total = 0

    def of(self, cell: int) -> Progress:
        """What the cell of this number tells."""

        def told(done: int, total: int) -> None:
            self._done[cell] = done
            newest = next(reversed(self._done))
            if cell == newest:
                self._total = total
            before = sum(own for number, own in self._done.items() if number != newest)
            left = self._cells - len(self._done) + 1
            self._progress(before + self._done[newest], before + self._total * left)

        return told
