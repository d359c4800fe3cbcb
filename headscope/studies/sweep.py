"""Sweep: a run for each combination of model, revision and corpus, all in one folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, PlainValidator

from headscope.errors import ArgumentError, HeadscopeError, reported_as
from headscope.models.last_model import LastModel
from headscope.options import (
    Name,
    OnMessage,
    PathName,
    Positive,
    check_paths,
    several,
    several_names,
)
from headscope.packages import optional_package
from headscope.paths import given_file
from headscope.progress import OnProgress, Progress, progress_bar
from headscope.relations import check_types
from headscope.resolve import load
from headscope.run import classify
from headscope.runs.folder import is_run
from headscope.runs.recorded_paths import lies, shorten_paths
from headscope.settings import Settings
from headscope.statistics.tags import countable_types
from headscope.studies.study import Command, Study, study, table_columns
from headscope.studies.sweep_folder import (
    COMPLETE,
    FAILED,
    Cell,
    SweepFolder,
    cell_table,
    measured_types,
    model_name,
    with_counts,
)
from headscope.views.study_result import StudyResult

STUDY = Study(
    command=Command(
        group="sweep",
        name="run",
        summary="Classify models × revisions × corpora.",
        examples=(
            "headscope sweep run stages.yaml --out runs/stages",
            "headscope sweep run --models checkpoints/ --revisions step128,step1000 "
            "--out runs/stages",
        ),
        out="",
        figure="",
    ),
    rows="run",
    columns=table_columns("""
        model | text | the model's name
        revision | text | its revision; empty for none
        corpus | names joined by `;` | what was read
        folder | text | the run folder's name in the sweep's folder
        status | `complete`, `failed` or `missing` | how it went
        heads | heads, ≥ 0 | heads of the model
        TYPE | heads, ≥ 0 | a column per type with the number of heads that hold its tag, then one
            for `not identifiable` and one for `unclassified`; empty if not measured
        error | a message | the reason of a failure
    """),
    bad_call={"workers": 0},
)


@study(STUDY)
def sweep(
    file: Annotated[
        PathName | None,
        Field(description="YAML with models, revisions, corpora, out and settings of classify."),
    ] = None,
    *,
    workers: Annotated[
        Positive,
        Field(description="Runs at the same time, each in a process that holds its model."),
    ] = 1,
    address: Annotated[
        Name | None,
        Field(description="Address of a running Ray cluster whose machines run the processes."),
    ] = None,
    progress: Progress = True,
    on_message: OnMessage = lambda line: None,
    **settings: Any,
) -> StudyResult:
    """Classify models × revisions × corpora: a run folder each, `sweep.json` and `sweep.csv`.

    Complete runs are kept, so that the same call resumes after a stop. A run that fails does not
    stop the others.

    Raises:
        HeadscopeError: the file cannot be read, or a key is unknown or has an invalid value.
        RunError: the folder holds another sweep, or cannot be written.
    """
    # the plan is made and checked before any model loads
    spec = read_spec(None if file is None else Path(file), **settings)
    check_types(spec.types)
    if (workers > 1 or address) and not all(isinstance(model, str) for model in spec.models):
        raise HeadscopeError("a loaded model is read in this process: name it, or use workers=1")
    folder = SweepFolder.open(Path(spec.out), spec.settings)
    cells = folder.plan(spec.models, spec.revisions, spec.corpora)
    was_complete = [is_run(folder.path / cell.folder) for cell in cells]
    # the table is written after each run, as a sweep takes long
    done: list[Cell] = []
    with (
        progress_bar(progress) as bar,
        closing(_results(spec, cells, workers, address, bar)) as results,
    ):
        folder.write()
        for cell in results:
            folder.cells[cell.folder] = cell
            folder.write()
            end = ", as it was" if was_complete[len(done)] else ""
            done.append(cell)
            on_message(f"{len(done)} of {len(cells)}: {cell}: {cell.error or cell.status}{end}")
    return sweep_result(spec.out, done)


def sweep_result(out: str | Path, cells: Sequence[Cell]) -> StudyResult:
    """The table of a sweep; the terminal shows complete runs and measured types."""
    table = cell_table(cells)
    is_complete = table["status"] == COMPLETE
    return StudyResult(
        title=f"{is_complete.sum()} of {len(cells)} runs complete in {out}: heads with a tag "
        "of each type",
        table=table,
        terminal_table=table.loc[is_complete, ["folder", "heads", *measured_types(cells)]],
        notes=[f"{cell} failed: {cell.error}" for cell in cells if cell.error],
    )


def _names(value: Any) -> tuple[str, ...]:
    """One name or several; YAML reads a revision such as 1000 as a number."""
    names = value if isinstance(value, list | tuple) else [value]
    return several_names([str(n) if type(n) is int or isinstance(n, Path) else n for n in names])


def _models(value: Any) -> tuple[Any, ...]:
    """Names of models, and loaded models."""
    items = value if isinstance(value, list | tuple) else [value]
    models: list[Any] = []
    for item in several(items, "a model"):
        if hasattr(item, "engine"):  # a loaded model
            models.append(item)
        else:
            models.extend(_names(item))
    return tuple(dict.fromkeys(models))


def _corpora(value: Any) -> tuple[tuple[str, ...], ...]:
    items = value if isinstance(value, list | tuple) and value else [value]
    corpora = [item if isinstance(item, list | tuple) else [item] for item in items]
    return tuple(dict.fromkeys(tuple(map(str, check_paths(paths))) for paths in corpora))


class SweepFile(Settings):
    """Keys of a sweep's file: models, revisions and corpora, beside settings of `classify`."""

    models: Annotated[tuple[Any, ...], PlainValidator(_models)] = Field((), validate_default=True)
    revisions: Annotated[tuple[str | None, ...], PlainValidator(_names)] = (None,)
    corpora: Annotated[tuple[tuple[str, ...], ...], PlainValidator(_corpora)] = ((),)
    out: PathName = Path("runs") / "sweep"
    revision: None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of `headscope.classify` that were given, as JSON holds them."""
        names = [name for name in Settings.model_fields if name in self.model_fields_set]
        values = {name: getattr(self, name) for name in names}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def read_spec(path: Path | None, **options: Any) -> SweepFile:
    """Read a sweep from a YAML file, from options that replace its keys, or from both.

    Raises:
        HeadscopeError: the file cannot be read, or a key is unknown or invalid.
    """
    # options replace keys of the file
    known = SweepFile.model_fields
    explicit = {name: v for name, v in options.items() if v is not None or name not in known}
    if path is None:
        return SweepFile(**explicit)
    raw = given_file(path, "a sweep as YAML, keys with values")
    try:
        # safe_load would take the last of equal keys
        names = [str(key.value) for key, _ in yaml.compose(raw, Loader=yaml.SafeLoader).value]
        if len(set(names)) < len(names):
            raise ValueError(f"the key {max(names, key=names.count)} comes twice")
        keys = {str(key): value for key, value in yaml.safe_load(raw).items()}
        return SweepFile(**{"out": Path("runs") / path.stem, **keys, **explicit})
    except (
        *(AttributeError, RecursionError, TypeError, ValueError),
        *(ArgumentError, yaml.YAMLError),
    ) as error:
        reason = " ".join(str(error).split())
        raise HeadscopeError(
            f"{path}: no sweep in YAML, keys with values such as models: [mini]: {reason:.300}"
        ) from error


def _run(
    spec: SweepFile,
    cell: Cell,
    backend: LastModel | None = None,
    *,
    progress: OnProgress | bool = False,
) -> Cell:
    model, corpus = cell.source
    folder = Path(spec.out) / cell.folder
    # a complete run is taken as it is
    try:
        if is_run(folder):
            run = load(folder)
        else:
            name, revision = where(model, cell.revision)
            settings = {**spec.settings, "revision": revision, "out": folder}
            # cells of one model follow each other, so that one process loads it once
            backend = backend or LastModel()
            run = classify(name, corpus or None, progress=progress, backend=backend, **settings)
        return with_counts(cell, run.heads, countable_types(run.evidence_with_thresholds))
    except Exception as error:  # a model's own code may fail in any way; the others can still run
        kind = "" if isinstance(error, HeadscopeError) else f"{type(error).__name__}: "
        paths = [str(spec.out), model_name(model), *corpus]
        text = shorten_paths(" ".join(str(error).split()), [*paths, *map(lies, paths)])
        return replace(cell, status=FAILED, error=f"{kind}{text}")


def where(model: Any, revision: str | None) -> tuple[Any, str | None]:
    """Name and revision to load; a revision of a local folder is a model folder inside it."""
    if not isinstance(model, str):
        return model, revision
    folder = Path(model).expanduser()
    if revision is None or not folder.is_dir():
        return model, revision
    return str(folder / revision), None


def _results(
    spec: SweepFile, cells: Sequence[Cell], workers: int, address: str | None, bar: OnProgress
) -> Generator[Cell, None, None]:
    run = partial(_run, spec)
    if address is not None:
        # the processes start in the current folder, which all machines of the cluster must share
        optional_package(f"--address {address}", "ray")
        import ray

        unusable = f"Ray at {address} cannot be used"
        with reported_as(HeadscopeError, unusable, ConnectionError, RuntimeError, ValueError):
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        return _results_of_pool(run, cells, workers)
    if workers > 1:
        return _results_of_processes(run, cells, workers)
    backend = LastModel()
    return (run(cell, backend, progress=bar) for cell in cells)


def _results_of_processes(
    run: Callable[[Cell], Cell], cells: Sequence[Cell], workers: int
) -> Generator[Cell, None, None]:
    """Complete cells in several processes of this machine; yield them in order.

    Raises:
        HeadscopeError: a process was killed.
    """
    # each process gets its share of the cores
    threads = max(1, (os.cpu_count() or 1) // workers)
    others = active_children()
    with ProcessPoolExecutor(workers, get_context("spawn"), _start, (threads,)) as pool:
        try:
            yield from pool.map(run, cells)
        except BrokenProcessPool as error:
            raise HeadscopeError(
                "a process of the sweep was killed, perhaps because memory ran out; use fewer "
                "--workers and repeat the command: complete runs are kept"
            ) from error
        except BaseException:  # else a stop would wait for the runs to end
            for process in set(active_children()).difference(others):
                process.terminate()
            raise


def _start(threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends the others
    import torch

    torch.set_num_threads(threads)


def _results_of_pool(
    run: Callable[[Cell], Cell], cells: Sequence[Cell], workers: int
) -> Generator[Cell, None, None]:
    import ray
    from ray.util.multiprocessing import Pool

    gpus = min(1.0, ray.cluster_resources().get("GPU", 0) / workers)
    try:
        with Pool(workers, os.chdir, (Path.cwd(),), ray_remote_args={"num_gpus": gpus}) as pool:
            yield from pool.imap(run, cells)
    finally:
        ray.shutdown()
