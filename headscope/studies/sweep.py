"""Sweep: a run for each combination of model, revision and corpus, all in one folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import yaml
from pydantic import Field, PlainValidator

from headscope.classification import classify
from headscope.corpus.shipped import unlike
from headscope.errors import ArgumentError, HeadscopeError, ModelError, RunError
from headscope.measure.in_process import InProcess
from headscope.models.locate import run_name
from headscope.options import (
    Name,
    OnMessage,
    Options,
    PathName,
    Positive,
    check_paths,
    several_names,
)
from headscope.paths import given_file
from headscope.progress import OnProgress, Progress, RunSteps, progress_bar
from headscope.relations import check_types, head_types
from headscope.runs.folder import is_run
from headscope.runs.recorded_paths import lies, name_of, seen_from, shorten_paths
from headscope.runs.resolve import load
from headscope.runs.tables import table_to_csv
from headscope.runs.write import write_files, writing
from headscope.settings import Settings, not_default
from headscope.statistics.tags import NO_TYPE, countable_types
from headscope.studies.study import Study, study, table_columns
from headscope.studies.sweep_processes import results_of_cluster, results_of_processes
from headscope.views.study import StudyResult

PLAN, TABLE = "sweep.json", "sweep.csv"
COMPLETE, FAILED, MISSING = "complete", "failed", "missing"


STUDY = Study(
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
    tell: OnMessage = lambda line: None,
    **settings: Any,
) -> StudyResult:
    """Classify models × revisions × corpora: a run folder each, `sweep.json` and `sweep.csv`.

    Complete runs are kept, so that the same call resumes after a stop. A run that fails does not
    stop the others.

    Raises:
        HeadscopeError: the file cannot be read, or a key is unknown or has an invalid value.
        RunError: the folder holds another sweep, or cannot be written.
    """
    spec = read_spec(None if file is None else Path(file), **settings)
    folder = SweepFolder.open(spec)
    cells = folder.plan(spec)
    was_complete = [is_run(spec.out / cell.folder) for cell in cells]
    done: list[Cell] = []
    with progress_bar(progress) as bar:
        results = _results(spec, cells, workers, address, RunSteps(bar, was_complete.count(False)))
        with closing(results):
            folder.write()
            for cell in results:
                folder.cells[cell.folder] = cell
                folder.write()
                end = ", as it was" if was_complete[len(done)] else ""
                done.append(cell)
                tell(f"{len(done)} of {len(cells)}: {cell}: {cell.error or cell.status}{end}")
    return sweep_result(spec, done)


def sweep_result(spec: Spec, cells: Sequence[Cell]) -> StudyResult:
    """The table of a sweep; the terminal shows complete runs and measured types."""
    table = cell_table(cells)
    is_complete = table["status"] == COMPLETE
    words = not_default(spec.settings)
    return StudyResult(
        title=f"{is_complete.sum()} of {len(cells)} runs complete in {spec.out}: heads with a tag "
        "of each type",
        table=table,
        terminal_table=table.loc[is_complete, ["folder", "heads", *measured_types(cells)]],
        summary=[f"not the default: {words}"] if words else [],
        notes=[f"{cell} failed: {cell.error}" for cell in cells if cell.error],
    )


@dataclass(frozen=True)
class Spec:
    """The models, revisions and corpora of a sweep, and the settings of each run."""

    models: tuple[str, ...]
    revisions: tuple[str | None, ...]
    corpora: tuple[tuple[str, ...], ...]
    """Files and folders of each corpus; empty for the corpus that ships."""
    out: Path
    settings: dict[str, Any]
    """Settings of `headscope.classify` that differ from their defaults, as JSON holds them."""


def _names(value: Any) -> tuple[str, ...]:
    """One name or several; YAML reads a revision such as 1000 as a number."""
    names = value if isinstance(value, list | tuple) else [value]
    is_number = [isinstance(name, int) and not isinstance(name, bool) for name in names]
    return several_names([str(n) if i else n for n, i in zip(names, is_number, strict=True)])


def _corpora(value: Any) -> tuple[tuple[str, ...], ...]:
    items = value if isinstance(value, list | tuple) else [value]
    corpora = [item if isinstance(item, list | tuple) else [item] for item in items]
    return tuple(dict.fromkeys(tuple(map(str, check_paths(paths))) for paths in corpora))


class SweepFile(Options):
    """Keys of a sweep's file, beside settings of `classify`."""

    models: Annotated[tuple[str, ...], PlainValidator(_names), Field(min_length=1)]
    revisions: Annotated[tuple[str | None, ...], PlainValidator(_names), Field(min_length=1)] = (
        None,
    )
    corpora: Annotated[
        tuple[tuple[str, ...], ...], PlainValidator(_corpora), Field(min_length=1)
    ] = ((),)
    out: PathName


def read_spec(path: Path | None, **options: Any) -> Spec:
    """Read a sweep from a YAML file, from options that replace its keys, or from both.

    Raises:
        HeadscopeError: the file cannot be read, or a key is unknown, missing or invalid.
    """
    where, values = "", {}
    if path is not None:
        where = f"{path}: "
        raw = given_file(path, "a sweep as YAML, keys with values")
        try:
            content = yaml.safe_load(raw)
        except (ValueError, yaml.YAMLError) as error:
            reason = " ".join(str(error).split())
            raise HeadscopeError(f"{path}: cannot be read as YAML: {reason:.300}") from error
        if not isinstance(content, dict):
            raise HeadscopeError(f"{where}a sweep is keys with values, e.g. models: [mini]")
        values = {str(key): value for key, value in content.items()}
    known = {*SweepFile.model_fields, *Settings.model_fields}
    values |= {key: v for key, v in options.items() if v is not None or key not in known}
    keys = {key: values.pop(key) for key in SweepFile.model_fields if key in values}
    if "models" not in keys:
        raise HeadscopeError(f"{path or 'sweep'}: no models; name them, e.g. models: [mini]")
    if "revision" in values:
        raise HeadscopeError(f"{where}a sweep has revisions, not one revision")
    try:
        settings = Settings(**values)
        file = SweepFile(**{"out": Path("runs") / ("sweep" if path is None else path.stem), **keys})
    except ArgumentError as error:
        raise HeadscopeError(f"{where}{error}") from error
    check_types(settings.types)
    explicit = {key: getattr(settings, key) for key in values}
    return Spec(
        models=file.models,
        revisions=file.revisions,
        corpora=file.corpora,
        out=Path(file.out),
        settings={key: list(v) if isinstance(v, tuple) else v for key, v in explicit.items()},
    )


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    model: str
    """Name of the model within the sweep."""
    revision: str | None
    corpus: tuple[str, ...]
    """Names of the corpus's files and folders within the sweep."""
    folder: str
    """Name of the run folder in the sweep's folder."""
    status: str = MISSING
    error: str = ""
    heads: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    """Number of heads with a tag of each measured type, and of heads without one."""
    source: tuple[str, tuple[str, ...]] = ("", ())
    """The model and the corpus as the user named them; never written."""

    @property
    def key(self) -> tuple[str, str | None, tuple[str, ...]]:
        """Model, revision and corpus."""
        return self.model, self.revision, self.corpus

    def __str__(self) -> str:
        parts = [self.model, self.revision, " + ".join(self.corpus)]
        return " ".join(part for part in parts if part)


def counted_types(measured: Collection[str] = ()) -> tuple[str, ...]:
    """Types with a column in `sweep.csv`; types on request only if they were measured."""
    types = (
        name
        for name, head_type in head_types().items()
        if head_type.relations and (name in measured or not head_type.on_request)
    )
    return (*types, *NO_TYPE)


def measured_types(cells: Sequence[Cell]) -> list[str]:
    """Types that at least one run measured, in the order of the columns."""
    return [name for name in (*head_types(), *NO_TYPE) if any(name in c.counts for c in cells)]


def cell_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row per run; a count is missing if the type was not measured."""
    types = counted_types(measured_types(cells))
    rows = [
        {
            "model": cell.model,
            "revision": cell.revision or "",
            "corpus": ";".join(cell.corpus),
            "folder": cell.folder,
            "status": cell.status,
            "heads": cell.heads,
            **{name: cell.counts.get(name) for name in types},
            "error": cell.error,
        }
        for cell in cells
    ]
    return pd.DataFrame(rows).astype(dict.fromkeys(("heads", *types), "Int64"))


def counted(cell: Cell, heads: pd.DataFrame, types: Collection[str]) -> Cell:
    """The cell as complete, with the number of heads of each of these types."""
    tags = [set(str(names).split(";")) for names in heads["tags"]]
    counts = {name: sum(name in held for held in tags) for name in head_types() if name in types}
    counts |= {name: int((heads["primary"] == name).sum()) for name in NO_TYPE}
    return replace(cell, status=COMPLETE, error="", heads=len(heads), counts=counts)


@dataclass
class SweepFolder:
    """The content of `sweep.json`."""

    path: Path
    settings: dict[str, Any]
    names: dict[str, str] = field(default_factory=dict)
    """Reference, path seen from the folder, or hash, by the name of a model or corpus.

    Absolute paths are not written, because a sweep's folder is meant to be shared."""
    cells: dict[str, Cell] = field(default_factory=dict)
    """Runs by the names of their folders, those of earlier sweeps into this folder included."""

    @classmethod
    def read(cls, path: Path) -> SweepFolder:
        """Read a sweep's folder.

        Raises:
            RunError: the folder holds no sweep, or a damaged one.
        """
        file = path / PLAN
        try:
            if not file.is_file():
                raise RunError(f"{path!s:.200}: no sweep here ({PLAN} is missing)")
            plan = json.loads(file.read_text(encoding="utf-8"))
            cells = [Cell(**{**row, "corpus": tuple(row["corpus"])}) for row in plan["cells"]]
            names = [Path(cell.folder).name for cell in cells]
            # a name that leads out of the folder would be read, and written to
            if names != [cell.folder for cell in cells] or not all(names) or ".." in names:
                raise ValueError("a run lies outside the folder")
            return cls(path, plan["settings"], plan["names"], dict(zip(names, cells, strict=True)))
        except OSError as error:
            raise RunError(f"{file!s:.200} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{file}: this sweep is damaged: {error!s:.200}") from error

    @classmethod
    def open(cls, spec: Spec) -> SweepFolder:
        """The sweep's folder, new or with the runs of an earlier sweep with the same settings.

        Raises:
            RunError: the folder holds a sweep with other settings, or other files.
            WriteError: it cannot be a folder.
        """
        out, settings = spec.out, spec.settings
        with writing(out):
            if not (out / PLAN).is_file():
                if out.exists() and (not out.is_dir() or any(out.iterdir())):
                    raise RunError(f"{out} holds other files and no sweep; choose a new folder")
                return cls(out, settings)
        earlier = cls.read(out)
        if earlier.settings != settings:
            raise RunError(
                f"{out} holds a sweep with other settings ({earlier.settings}, now {settings}); "
                "choose another --out"
            )
        return earlier

    def plan(self, spec: Spec) -> list[Cell]:
        """Add the runs of a sweep and return them; a run that is already here keeps its folder."""
        earlier = {cell.key: cell for cell in self.cells.values()}
        cells = []
        for model, revision, corpus in product(spec.models, spec.revisions, spec.corpora):
            key = self._name(model), revision, tuple(map(self._name, corpus))
            cell = earlier.get(key) or Cell(*key, self._free_folder(model, revision, corpus))
            cells.append(replace(cell, source=(model, corpus)))
            self.cells[cell.folder] = cells[-1]
        return cells

    def write(self) -> None:
        """Write `sweep.json` and `sweep.csv`.

        Raises:
            WriteError: they cannot be written.
        """
        rows = [asdict(cell) for cell in self.cells.values()]
        for row in rows:
            del row["source"]
        plan = {"settings": self.settings, "names": self.names, "cells": rows}
        text = json.dumps(plan, indent=1, ensure_ascii=False) + "\n"
        table = table_to_csv(cell_table([*self.cells.values()]))
        files = {self.path / PLAN: text, self.path / TABLE: table}
        write_files(files, overwrite=True)

    def _name(self, reference: str) -> str:
        identity = self._identity(reference)
        names = (name for name, other in self.names.items() if other == identity)
        name = next(names, None) or unlike(name_of(reference), self.names)
        self.names[name] = identity
        return name

    def _identity(self, reference: str) -> str:
        if name_of(reference) == reference:
            return reference
        path = lies(reference)
        digest = hashlib.sha256(path.encode("utf-8", "backslashreplace")).hexdigest()
        return seen_from(self.path, path) or f"sha256:{digest}"

    def _free_folder(self, model: str, revision: str | None, corpus: Sequence[str]) -> str:
        parts = [run_name(model), revision or "", *(Path(path).stem for path in corpus[:2])]
        name = re.sub(r"[^\w.-]+", "-", "_".join(filter(None, parts)))[:100].strip(".-") or "run"
        numbered, number = name, 1
        while numbered in {*self.cells, PLAN, TABLE}:
            number += 1
            numbered = f"{name}-{number}"
        return numbered


def _run(
    spec: Spec, cell: Cell, backend: InProcess | None = None, *, progress: OnProgress | bool = False
) -> Cell:
    model, corpus = cell.source
    folder = spec.out / cell.folder
    try:
        if is_run(folder):
            run = load(folder)
        else:
            name, revision = where(model, cell.revision)
            settings = {**spec.settings, "revision": revision, "out": folder}
            backend = backend or InProcess()
            run = classify(name, corpus or None, progress=progress, backend=backend, **settings)
        return counted(cell, run.heads, countable_types(run.evidence, run.rules))
    except Exception as error:  # a model's own code may fail in any way; the others can still run
        kind = "" if isinstance(error, HeadscopeError) else f"{type(error).__name__}: "
        paths = [str(spec.out), model, *corpus]
        text = shorten_paths(" ".join(str(error).split()), [*paths, *map(lies, paths)])
        return replace(cell, status=FAILED, error=f"{kind}{text}")


def where(model: str, revision: str | None) -> tuple[str, str | None]:
    """Name and revision to load; a revision of a local folder is a model folder inside it.

    Raises:
        ModelError: the folder holds no such revision.
    """
    folder = Path(model).expanduser()
    if revision is None or not folder.is_dir():
        return model, revision
    if not (folder / revision).is_dir():
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
        listed = f"it holds {', '.join(names)}" if names else "it holds no folders"
        raise ModelError(f"{model}: no folder {revision!r} in it; {listed:.300}")
    return str(folder / revision), None


def _results(
    spec: Spec, cells: Sequence[Cell], workers: int, address: str | None, steps: RunSteps
) -> Generator[Cell, None, None]:
    run = partial(_run, spec)
    if address is not None:
        return results_of_cluster(run, cells, workers, address)
    if workers > 1:
        return results_of_processes(run, cells, workers)
    backend = InProcess()
    return (run(cell, backend, progress=steps.of(number)) for number, cell in enumerate(cells))
