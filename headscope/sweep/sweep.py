"""A sweep: cell after cell, each a run folder; what is there is kept, what fails is noted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headscope.errors import HeadscopeError
from headscope.measurer import InProcess, Measurer
from headscope.pipeline import classify
from headscope.run import Run
from headscope.store import load
from headscope.sweep.cells import COMPLETE, FAILED, Cell, counted, is_complete, plan_cells, where
from headscope.sweep.cells import write_sweep as write
from headscope.sweep.spec import Spec

Progress = Callable[[int, int], None]
Say = Callable[[str], None]


def sweep(
    spec: Spec,
    *,
    measurer: Measurer | None = None,
    progress: Progress = lambda done, total: None,
    say: Say = lambda line: None,
) -> list[Cell]:
    """Run every cell that is not complete yet, and keep `sweep.json` and `sweep.csv` up to date.

    Args:
        spec: what to do.
        measurer: what loads and reads the models; this process when None.
        progress: called with the tokens done and those of all cells that are left, which are
            reckoned from the cell that is running.
        say: called with a line when a cell is done.

    Returns:
        The cells that were asked for, those that failed with their error.

    Raises:
        RunError: the sweep's folder holds another sweep, or cannot be written.
    """
    measurer = measurer or InProcess()
    cells = plan_cells(spec)
    write(spec, cells)
    left = [cell for cell in cells if not is_complete(spec, cell)]
    count = _Count(progress, len(left))
    done = []
    for number, cell in enumerate(cells, 1):
        before = is_complete(spec, cell)
        now = _run(spec, cell, measurer, count)
        if not before:
            count.next()
        done.append(now)
        write(spec, [now])
        say(f"{number} of {len(cells)}: {now}: {_outcome(now, before)}")
    return done


def _run(spec: Spec, cell: Cell, measurer: Measurer, progress: Progress) -> Cell:
    """The cell with its outcome; a run that is there already is only read."""
    try:
        if is_complete(spec, cell):
            return counted(cell, load(spec.out / cell.folder).heads)
        return counted(cell, _classify(spec, cell, measurer, progress).heads)
    except HeadscopeError as error:
        return replace(cell, status=FAILED, error=str(error))
    except Exception as error:  # a model's own code may fail in any way; the others can still run
        said = " ".join(str(error).split())
        return replace(cell, status=FAILED, error=f"{type(error).__name__}: {said:.300}")


def _classify(spec: Spec, cell: Cell, measurer: Measurer, progress: Progress) -> Run:
    name, revision = where(cell.model, cell.revision)
    return classify(
        name, cell.corpus, revision=revision, out=spec.out / cell.folder, progress=progress,
        measurer=measurer, **spec.settings,
    )  # fmt: skip


def _outcome(cell: Cell, before: bool) -> str:
    if cell.status != COMPLETE:
        return f"failed: {cell.error}"
    tagged = cell.heads - cell.counts["unclassified"]
    return f"{tagged} of {cell.heads} heads tagged{', as it was' if before else ''}"


class _Count:
    """Turns a cell's tokens into those of the sweep; the cells to come count like this one."""

    def __init__(self, progress: Progress, cells: int) -> None:
        self._progress, self._cells = progress, cells
        self._before, self._ran, self._now, self._of = 0, 0, 0, 0

    def __call__(self, done: int, total: int) -> None:
        self._now, self._of = done, total
        self._progress(self._before + done, self._before + total * (self._cells - self._ran))

    def next(self) -> None:
        """Go on to the next cell; one that failed had only as many tokens as were read."""
        self._before += self._now
        self._ran += 1
        self._now = 0
