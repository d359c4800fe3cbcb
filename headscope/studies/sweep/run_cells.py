"""A sweep: cell after cell, each a run folder; what is there is kept, what fails is noted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headscope.arguments import NAME, PATH, maybe, takes, whole
from headscope.classification import classify
from headscope.errors import HeadscopeError
from headscope.measure.in_process import InProcess
from headscope.measure.progress import OnProgress, Progress, progress_bar
from headscope.measure.progress_steps import RunSteps
from headscope.runs.store import load
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE, countable_types
from headscope.studies.sweep.processes import results_of_cluster, results_of_processes
from headscope.studies.sweep.spec import Spec, read_spec
from headscope.studies.sweep.sweep_cells import (
    COMPLETE,
    FAILED,
    Cell,
    counted,
    is_complete,
    plan_cells,
    where,
)
from headscope.studies.sweep.sweep_cells import write_sweep as write
from headscope.studies.sweep.sweep_result import Sweep

OnMessage = Callable[[str], None]


@takes(file=maybe(PATH), workers=whole(1), address=maybe(NAME))
def sweep(
    file: str | Path | None = None,
    *,
    workers: int = 1,
    address: str | None = None,
    progress: Progress = True,
    tell: OnMessage = lambda line: None,
    **settings: Any,
) -> Sweep:
    """Classify models × revisions × corpora: a run folder each, `sweep.json` and `sweep.csv`.

    What is complete is kept, so that the same call goes on after a stop; what fails is noted.

    Args:
        file: YAML with `models`, `revisions`, `corpora`, `out` and settings of `classify`.
        workers: runs at the same time, each in a process that holds its model. A script with more
            than one calls `sweep` below `if __name__ == "__main__":`.
        address: address of a running Ray cluster whose machines run the processes.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and those of all runs that are left. Several workers draw no bar.
        tell: called with a line when a run is done.
        settings: the file's keys, in place of what it says or of a file.

    Raises:
        HeadscopeError: the file cannot be read, or holds what no sweep is.
        RunError: the sweep's folder holds another sweep, or cannot be written.
    """
    spec = read_spec(None if file is None else Path(file), **settings)
    with progress_bar(progress) as bar:
        cells = run_cells(spec, workers=workers, address=address, progress=bar, tell=tell)
    return Sweep(spec.out, cells, spec.settings)


def run_cells(
    spec: Spec,
    *,
    workers: int = 1,
    address: str | None = None,
    progress: OnProgress = lambda done, total: None,
    tell: OnMessage = lambda line: None,
) -> list[Cell]:
    """Run every cell that is not complete yet, and keep `sweep.json` and `sweep.csv` up to date.

    Args:
        spec: what to do.
        workers: runs at the same time.
        address: address of a running Ray cluster.
        progress: called with the tokens done and those of all cells that are left, which are
            reckoned from the cell that is running.
        tell: called with a line when a cell is done.

    Returns:
        The cells that were asked for, those that failed with their error.

    Raises:
        RunError: the sweep's folder holds another sweep, or cannot be written.
    """
    cells = plan_cells(spec)
    write(spec, cells)
    there = [is_complete(spec, cell) for cell in cells]
    if address is not None:
        results = results_of_cluster(partial(_run, spec), cells, workers, address)
    elif workers > 1:
        results = results_of_processes(partial(_run, spec), cells, workers)
    else:
        results = _in_turn(spec, cells, RunSteps(progress, there.count(False)))
    done = []
    with closing(results):
        for number, now in enumerate(results, 1):
            done.append(now)
            write(spec, [now])
            tell(f"{number} of {len(cells)}: {now}: {_outcome(now, there[number - 1])}")
    return done


def _in_turn(spec: Spec, cells: Sequence[Cell], steps: RunSteps) -> Generator[Cell, None, None]:
    backend = InProcess()
    for number, cell in enumerate(cells):
        yield _run(spec, cell, backend, progress=steps.of(number))


def _run(
    spec: Spec, cell: Cell, backend: InProcess | None = None, *, progress: OnProgress | bool = False
) -> Cell:
    """Run a cell unless its run folder is complete; return it with its status and counts."""
    try:
        if is_complete(spec, cell):
            run = load(spec.out / cell.folder)
        else:
            run = _classify(spec, cell, backend or InProcess(), progress)
        return counted(cell, run.heads, countable_types(run.evidence, run.rules))
    except HeadscopeError as error:
        return replace(cell, status=FAILED, error=str(error))
    except Exception as error:  # a model's own code may fail in any way; the others can still run
        message = " ".join(str(error).split())
        return replace(cell, status=FAILED, error=f"{type(error).__name__}: {message:.300}")


def _classify(spec: Spec, cell: Cell, backend: InProcess, progress: OnProgress | bool) -> Result:
    name, revision = where(*cell.loads)
    settings = {**spec.settings, "revision": revision, "out": spec.out / cell.folder}
    return classify(name, cell.text or None, progress=progress, backend=backend, **settings)


def _outcome(cell: Cell, before: bool) -> str:
    if cell.status != COMPLETE or cell.heads is None:
        return f"failed: {cell.error}"
    tagged = cell.heads - sum(cell.counts[name] for name in NO_TYPE)
    return f"{tagged} of {cell.heads} heads tagged{', as it was' if before else ''}"
