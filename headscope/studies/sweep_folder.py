"""Folder of a sweep: its runs as cells, `sweep.json` and `sweep.csv`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from headscope.corpus.shipped import unlike
from headscope.errors import RunError, reported_as
from headscope.models.locate import run_name
from headscope.relations import head_types
from headscope.runs.recorded_paths import lies, name_of, seen_from
from headscope.runs.tables import table_to_csv
from headscope.runs.write import write_files, writing
from headscope.statistics.tags import NO_TYPE
from headscope.user_tables import json_content

PLAN, TABLE = "sweep.json", "sweep.csv"
COMPLETE, FAILED, MISSING = "complete", "failed", "missing"
Corpus = tuple[str, ...]


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
    source: tuple[Any, tuple[str, ...]] = ("", ())
    """The model and the corpus as the user named them, or a loaded model; never written."""

    def __str__(self) -> str:
        parts = [self.model, self.revision, " + ".join(self.corpus)]
        return " ".join(part for part in parts if part)


def model_name(model: Any) -> str:
    """Name of a model that is a name, or is loaded."""
    return model if isinstance(model, str) else str(model.name)


def counted_types(measured: Collection[str] = ()) -> tuple[str, ...]:
    """Types with a column in `sweep.csv`; types on request only if they were measured."""
    types = []
    for name, head_type in head_types().items():
        is_shown = name in measured or not head_type.on_request
        if head_type.relations and is_shown:
            types.append(name)
    return (*types, *NO_TYPE)


def measured_types(cells: Sequence[Cell]) -> list[str]:
    """Types that at least one run measured, in the order of the columns."""
    measured: set[str] = set()
    for cell in cells:
        measured.update(cell.counts)
    return [name for name in (*head_types(), *NO_TYPE) if name in measured]


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


def with_counts(cell: Cell, heads: pd.DataFrame, types: Collection[str]) -> Cell:
    """The cell as complete, with the number of heads of each of these types."""
    counts: dict[str, int] = {}
    tags_of_heads = [str(tags).split(";") for tags in heads["tags"]]
    for name in head_types():
        if name in types:
            counts[name] = sum(name in tags for tags in tags_of_heads)
    for name in NO_TYPE:
        counts[name] = int((heads["primary"] == name).sum())
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
        damaged = f"{file!s:.100}: no sweep, or a damaged one"
        with reported_as(RunError, damaged, OSError, ValueError, KeyError, TypeError):
            plan = json_content(file.read_bytes(), str(file), RunError)
            cells = {}
            for row in plan["cells"]:
                corpus = tuple(row["corpus"])
                cell = Cell(**{**row, "corpus": corpus})
                # a name that leads out of the folder would be read, and written to
                if Path(cell.folder).name != cell.folder or cell.folder in ("", ".."):
                    raise ValueError("a run lies outside the folder")
                cells[cell.folder] = cell
            return cls(path=path, settings=plan["settings"], names=plan["names"], cells=cells)

    @classmethod
    def open(cls, out: Path, settings: dict[str, Any]) -> SweepFolder:
        """The sweep's folder, new or with the runs of an earlier sweep with the same settings.

        Raises:
            RunError: the folder contains a sweep with other settings, or other files.
            WriteError: it cannot be a folder.
        """
        with writing(out):
            if not (out / PLAN).is_file():
                if out.exists() and (not out.is_dir() or any(out.iterdir())):
                    raise RunError(f"{out} contains other files and no sweep; choose a new folder")
                return cls(out, settings)
        earlier = cls.read(out)
        if earlier.settings != settings:
            raise RunError(
                f"{out} contains a sweep with other settings ({earlier.settings}, now {settings}); "
                "choose another --out"
            )
        return earlier

    def plan(
        self, models: Sequence[Any], revisions: Sequence[str | None], corpora: Sequence[Corpus]
    ) -> list[Cell]:
        """Add the runs of a sweep and return them; a run that is already here keeps its folder."""
        earlier = {(cell.model, cell.revision, cell.corpus): cell for cell in self.cells.values()}
        cells = []
        for model, revision, corpus in product(models, revisions, corpora):
            reference = model_name(model)
            name = self._name(reference)
            corpus_names = tuple(self._name(path) for path in corpus)
            # a sweep that is called again with more models keeps the runs that it has
            cell = earlier.get((name, revision, corpus_names))
            # a free name for a new run: model, revision and the first corpora
            if cell is None:
                stems = [Path(path).stem for path in corpus[:2]]
                parts = [run_name(reference), revision or "", *stems]
                words = "_".join(part for part in parts if part)
                stem = re.sub(r"[^\w.-]+", "-", words)[:100].strip(".-") or "run"
                folder = stem
                number = 1
                while folder in {*self.cells, PLAN, TABLE}:
                    number += 1
                    folder = f"{stem}-{number}"
                cell = Cell(model=name, revision=revision, corpus=corpus_names, folder=folder)
            cell_with_source = replace(cell, source=(model, corpus))
            self.cells[cell.folder] = cell_with_source
            cells.append(cell_with_source)
        return cells

    def write(self) -> None:
        """Write `sweep.json` and `sweep.csv`.

        Raises:
            WriteError: they cannot be written.
        """
        cells = list(self.cells.values())
        rows = []
        for cell in cells:
            # a loaded model cannot be copied
            row = asdict(replace(cell, source=("", ())))
            del row["source"]
            rows.append(row)
        plan = {"settings": self.settings, "names": self.names, "cells": rows}
        content_of_file = {
            self.path / PLAN: json.dumps(plan, indent=1, ensure_ascii=False) + "\n",
            self.path / TABLE: table_to_csv(cell_table(cells)),
        }
        write_files(content_of_file, overwrite=True)

    def _name(self, reference: str) -> str:
        identity = reference
        if name_of(reference) != reference:
            path = lies(reference)
            digest = hashlib.sha256(path.encode("utf-8", "backslashreplace")).hexdigest()
            identity = seen_from(self.path, path) or f"sha256:{digest}"
        names = (name for name, other in self.names.items() if other == identity)
        name = next(names, None) or unlike(name_of(reference), self.names)
        self.names[name] = identity
        return name
