"""The cells of a sweep, each with its run folder; `sweep.json` and `sweep.csv` keep them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headscope.errors import ModelError, RunError
from headscope.relations import head_types
from headscope.runs.folder import encoded, is_run
from headscope.runs.recorded_paths import lies, shorten_paths
from headscope.runs.tables import table_to_csv
from headscope.runs.write import place_of, unwritable_file, write_files
from headscope.settings import Settings
from headscope.statistics.tags import NO_TYPE
from headscope.studies.sweep.cell_names import CellNames, folder_name
from headscope.studies.sweep.spec import Spec

PLAN, TABLE = "sweep.json", "sweep.csv"
COMPLETE, FAILED, MISSING = "complete", "failed", "missing"


def counted_types(measured: Collection[str] = ()) -> tuple[str, ...]:
    """The types whose heads a sweep counts in each run, and heads without one.

    Args:
        measured: types that some run was asked for; those on request are counted among these alone.
    """
    types = (
        name
        for name, head_type in head_types().items()
        if head_type.relations and (name in measured or not head_type.on_request)
    )
    return (*types, *NO_TYPE)


class CellSource(NamedTuple):
    """The model and corpus of a cell, as they were asked for."""

    model: str
    corpus: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: what is read of what, and where its folder lies."""

    model: str
    """What the sweep calls it; see `headscope.studies.sweep.cell_names`."""
    revision: str | None
    corpus: tuple[str, ...]
    folder: str
    """The name of its run folder in the sweep's folder."""
    status: str = MISSING
    error: str = ""
    heads: int | None = None
    """The model's heads, once they are known."""
    counts: dict[str, int] = field(default_factory=dict)
    """Heads that hold a tag of each type, and those that hold none. A head may hold several. Types
    that were not asked for, or for which the text had too few queries, are absent."""
    primary: dict[str, int] = field(default_factory=dict)
    """Heads by their primary type."""
    source: CellSource | None = None
    """The names and paths that were asked for; not written, and not known of a cell read back."""

    @property
    def key(self) -> tuple[str, str | None, tuple[str, ...]]:
        """The values that distinguish it from the sweep's other cells."""
        return self.model, self.revision, self.corpus

    @property
    def loads(self) -> tuple[str, str | None]:
        """The name or path that was asked for, and the revision."""
        return (self.model if self.source is None else self.source.model), self.revision

    @property
    def text(self) -> tuple[str, ...]:
        """The paths of its corpus that were asked for."""
        return self.corpus if self.source is None else self.source.corpus

    def __str__(self) -> str:
        parts = [self.model, self.revision, " + ".join(self.corpus)]
        return " ".join(part for part in parts if part)


def where(model: str, revision: str | None) -> tuple[str, str | None]:
    """The name and revision to load: a revision of a local folder is a model folder inside it.

    Raises:
        ModelError: the folder holds no such revision.
    """
    folder = Path(model).expanduser()
    if revision is None or not folder.is_dir():
        return model, revision
    if not (folder / revision).is_dir():
        held = sorted(path.name for path in folder.iterdir() if path.is_dir())
        listed = f"it holds {', '.join(held)}" if held else "it holds no folders"
        raise ModelError(f"{model}: no folder {revision!r} in it; {listed:.300}")
    return str(folder / revision), None


def plan_cells(spec: Spec) -> list[Cell]:
    """The cells that a sweep asks for, those of one model together; known folders keep their names.

    Raises:
        RunError: its folder holds another sweep, or something else.
        WriteError: it can be no folder.
    """
    names, there = _known(spec)
    known = {cell.key: cell for cell in there}
    used = {cell.folder for cell in known.values()} | {PLAN, TABLE}
    cells = []
    for model in spec.models:
        for revision in spec.revisions:
            for corpus in spec.corpora:
                key = names.model(model), revision, names.corpus(corpus)
                cell = known.get(key)
                if cell is None:
                    cell = Cell(*key, folder_name(model, revision, corpus, used))
                    used.add(cell.folder)
                cells.append(replace(cell, source=CellSource(model, corpus)))
    return cells


def write_sweep(spec: Spec, cells: Sequence[Cell]) -> None:
    """Write `sweep.json` and `sweep.csv`; cells of earlier sweeps into this folder stay in them.

    Raises:
        WriteError: they cannot be written.
    """
    names, known = _known(spec)
    for cell in cells:
        if cell.source is not None:
            names.model(cell.source.model)
            names.corpus(cell.source.corpus)
    merged = [*{cell.key: _shareable(spec, cell) for cell in [*known, *cells]}.values()]
    plan = {
        "settings": _settings(spec),
        "models": names.models,
        "corpora": names.corpora,
        "cells": [_written(cell) for cell in merged],
    }
    text = json.dumps(plan, indent=1, ensure_ascii=False) + "\n"
    table = table_to_csv(cell_table(merged))
    files = {spec.out / PLAN: encoded(text), spec.out / TABLE: encoded(table)}
    write_files(files, overwrite=True)


def cell_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row per cell, as `sweep.csv` has it: heads that hold a tag of each type."""
    # whole numbers that can be missing: what was not measured is blank
    types = counted_types(measured_types(cells))
    numbers = dict.fromkeys(("heads", *types), "Int64")
    return pd.DataFrame([_row(cell, types) for cell in cells]).astype(numbers)


def measured_types(cells: Sequence[Cell]) -> set[str]:
    """The types that some cell's run was asked for."""
    return {name for cell in cells for name in cell.counts}


def read_sweep_cells(folder: Path) -> list[Cell]:
    """The cells of a sweep's folder.

    Raises:
        RunError: no sweep there, or a damaged one.
    """
    return _read(folder)[2]


def counted(cell: Cell, heads: pd.DataFrame, types: Collection[str]) -> Cell:
    """The cell, complete, with what its run's heads do.

    Args:
        cell: the cell.
        heads: its run's heads.
        types: the types that were measured; see `headscope.statistics.tags.countable_types`.
    """
    tags = [set(str(held).split(";")) for held in heads["tags"]]
    counts = {name: sum(name in held for held in tags) for name in head_types() if name in types}
    primary = heads["primary"].value_counts()
    counts |= {name: int(primary.get(name, 0)) for name in NO_TYPE}
    first = {name: int(primary.get(name, 0)) for name in counts}
    done = replace(cell, status=COMPLETE, error="", heads=len(heads))
    return replace(done, counts=counts, primary=first)


def _shareable(spec: Spec, cell: Cell) -> Cell:
    """The cell with an error that speaks of names, not of paths."""
    paths = [str(spec.out)] + (
        [] if cell.source is None else [cell.source.model, *cell.source.corpus]
    )
    return replace(cell, error=shorten_paths(cell.error, [*paths, *map(lies, paths)]))


def _written(cell: Cell) -> dict[str, Any]:
    facts = asdict(cell)
    del facts["source"]
    return facts


def _row(cell: Cell, types: Sequence[str]) -> dict[str, Any]:
    return {
        "model": cell.model,
        "revision": cell.revision or "",
        "corpus": ";".join(cell.corpus),
        "folder": cell.folder,
        "status": cell.status,
        "heads": cell.heads,
        **{name: cell.counts.get(name) for name in types},
        "error": cell.error,
    }


def _known(spec: Spec) -> tuple[CellNames, list[Cell]]:
    """The names and cells of a folder that holds a sweep with the same settings; none of others."""
    if not _holds_a_sweep(spec.out):
        return CellNames(spec.out), []
    settings, names, cells = _read(spec.out)
    now = _settings(spec)
    if settings != now:
        both = [
            (name, *(values.get(name, "not set") for values in (settings, now)))
            for name in sorted(settings.keys() | now.keys())
        ]
        other = [(name, there, requested) for name, there, requested in both if there != requested]
        differences = "; another ".join(
            f"{name} ({there}, and {requested} is asked now)" for name, there, requested in other
        )
        raise RunError(f"{spec.out} holds a sweep with another {differences}; choose another --out")
    return names, cells


READS_ALL = "all"


def _settings(spec: Spec) -> dict[str, Any]:
    """A sweep's settings as `sweep.json` has them: always with how far texts are read."""
    return {READS_ALL: Settings.all} | spec.settings


def _holds_a_sweep(folder: Path) -> bool:
    """Tells whether the folder holds a sweep, or else is free."""
    try:
        place_of(folder)
        if (folder / PLAN).is_file():
            return True
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(
                f"{folder} holds other things and no sweep; choose an empty or new folder"
            )
        return False
    except OSError as error:
        raise unwritable_file(folder, error) from error


def _read(folder: Path) -> tuple[dict[str, Any], CellNames, list[Cell]]:
    path = folder / PLAN
    try:
        if not path.is_file():
            raise RunError(
                f"{folder!s:.200}: no sweep here ({PLAN} is missing); write one with headscope "
                "sweep"
            )
        plan = json.loads(path.read_text(encoding="utf-8"))
        names = CellNames.read(folder, plan)
        return dict(plan["settings"]), names, list(_cells(plan["cells"]))
    except OSError as error:
        raise RunError(f"{path!s:.200} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path}: this sweep is damaged: {error!s:.200}") from error


def _cells(rows: Any) -> Iterator[Cell]:
    for row in rows:
        cell = Cell(**{**row, "corpus": tuple(map(str, row["corpus"])), "source": None})
        # a name that leads elsewhere would be read, and written to
        if Path(cell.folder).name != cell.folder or cell.folder in ("", ".", ".."):
            raise ValueError(f"{cell.folder!r:.100} is no name of a folder")
        numbers = [*cell.counts.values(), *cell.primary.values()]
        numbers += [] if cell.heads is None else [cell.heads]
        if not all(type(number) is int for number in numbers):
            raise ValueError(f"the numbers of {cell.folder!r:.100} are no whole numbers")
        yield cell


def is_complete(spec: Spec, cell: Cell) -> bool:
    """True where its run folder is there; run folders are whole or absent."""
    return is_run(spec.out / cell.folder)
