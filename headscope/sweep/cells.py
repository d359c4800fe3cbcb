"""The cells of a sweep, each with its run folder; `sweep.json` and `sweep.csv` keep them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from headscope.errors import ModelError, RunError
from headscope.folder import encoded, is_run
from headscope.relations import TYPES
from headscope.sweep.spec import Spec
from headscope.tables import table_to_csv
from headscope.tags import UNCLASSIFIED

PLAN, TABLE = "sweep.json", "sweep.csv"
COMPLETE, FAILED, MISSING = "complete", "failed", "missing"
COUNTS = (*TYPES, UNCLASSIFIED)


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: what is read of what, and where its folder lies."""

    model: str
    revision: str | None
    corpus: tuple[str, ...]
    folder: str
    """The name of its run folder in the sweep's folder."""
    status: str = MISSING
    error: str = ""
    heads: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Heads that hold a tag of each type, and those that hold none. A head may hold several."""
    primary: dict[str, int] = field(default_factory=dict)
    """Heads by their primary type."""

    @property
    def key(self) -> tuple[str, str | None, tuple[str, ...]]:
        """What tells it from the sweep's other cells."""
        return self.model, self.revision, self.corpus

    def __str__(self) -> str:
        parts = [self.model, self.revision, " + ".join(Path(path).name for path in self.corpus)]
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
    """
    known = {cell.key: cell for cell in _known(spec)}
    used = {cell.folder for cell in known.values()}
    cells = []
    for model in spec.models:
        for revision in spec.revisions:
            for corpus in spec.corpora:
                cell = known.get((model, revision, corpus))
                if cell is None:
                    cell = Cell(model, revision, corpus, _folder(model, revision, corpus, used))
                    used.add(cell.folder)
                cells.append(cell)
    return cells


def write_sweep(spec: Spec, cells: Sequence[Cell]) -> None:
    """Write `sweep.json` and `sweep.csv`; cells of earlier sweeps into this folder stay in them.

    Raises:
        RunError: they cannot be written.
    """
    merged = {cell.key: cell for cell in [*_known(spec), *cells]}
    plan = {"settings": spec.settings, "cells": [asdict(cell) for cell in merged.values()]}
    rows = [_row(cell) for cell in merged.values()]
    try:
        spec.out.mkdir(parents=True, exist_ok=True)
        _replace(spec.out / PLAN, json.dumps(plan, indent=1, ensure_ascii=False) + "\n")
        _replace(spec.out / TABLE, table_to_csv(pd.DataFrame(rows)))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"{spec.out!s:.200} cannot be written: {reason}") from error


def read_cells(folder: Path) -> list[Cell]:
    """The cells of a sweep's folder.

    Raises:
        RunError: no sweep there, or a damaged one.
    """
    return _read(folder)[1]


def counted(cell: Cell, heads: pd.DataFrame) -> Cell:
    """The cell, complete, with what its run's heads do."""
    tags = [set(str(held).split(";")) for held in heads["tags"]]
    counts = {name: sum(name in held for held in tags) for name in TYPES}
    primary = heads["primary"].value_counts()
    counts[UNCLASSIFIED] = int(primary.get(UNCLASSIFIED, 0))
    return replace(
        cell, status=COMPLETE, error="", heads=len(heads), counts=counts,
        primary={name: int(primary.get(name, 0)) for name in COUNTS},
    )  # fmt: skip


def _row(cell: Cell) -> dict[str, Any]:
    return {
        "model": cell.model,
        "revision": cell.revision or "",
        "corpus": ";".join(cell.corpus),
        "folder": cell.folder,
        "status": cell.status,
        "heads": cell.heads,
        **{name: cell.counts.get(name, 0) for name in COUNTS},
        "error": cell.error,
    }


def _known(spec: Spec) -> list[Cell]:
    """The cells that a folder holds already, if it holds a sweep with the same settings."""
    if not (spec.out / PLAN).is_file():
        held = list(spec.out.iterdir()) if spec.out.is_dir() else []
        if held or (spec.out.exists() and not spec.out.is_dir()):
            raise RunError(
                f"{spec.out} holds other things and no sweep; choose an empty or new folder"
            )
        return []
    settings, cells = _read(spec.out)
    if settings != spec.settings:
        for name in sorted(settings.keys() | spec.settings.keys()):
            there, asked = (each.get(name, "not set") for each in (settings, spec.settings))
            if there != asked:
                raise RunError(
                    f"{spec.out} holds a sweep with another {name} ({there}, and {asked} is asked "
                    "now); choose another --out"
                )
    return cells


def _read(folder: Path) -> tuple[dict[str, Any], list[Cell]]:
    path = folder / PLAN
    if not path.is_file():
        raise RunError(
            f"{folder!s:.200}: no sweep here ({PLAN} is missing); write one with headscope sweep"
        )
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        return dict(plan["settings"]), list(_cells(plan["cells"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path}: this sweep is damaged: {error!s:.200}") from error


def _cells(rows: Any) -> Iterator[Cell]:
    for row in rows:
        cell = Cell(**{**row, "corpus": tuple(map(str, row["corpus"]))})
        # a name that leads elsewhere would be read, and written to
        if Path(cell.folder).name != cell.folder or cell.folder in ("", ".", ".."):
            raise ValueError(f"{cell.folder!r:.100} is no name of a folder")
        numbers = [cell.heads, *cell.counts.values(), *cell.primary.values()]
        if not all(type(number) is int for number in numbers):
            raise ValueError(f"the numbers of {cell.folder!r:.100} are no whole numbers")
        yield cell


def _folder(model: str, revision: str | None, corpus: Sequence[str], used: set[str]) -> str:
    """A name that says what is in it, unlike those in use."""
    parts = [Path(model).name.removesuffix(".gguf"), revision or ""]
    parts += [Path(path).stem for path in corpus[:2]]
    name = re.sub(r"[^\w.-]+", "-", "_".join(part for part in parts if part))[:100].strip(".-")
    name, number = name or "run", 1
    while (numbered := name if number == 1 else f"{name}-{number}") in used or numbered in (
        PLAN, TABLE,
    ):  # fmt: skip
        number += 1
    return numbered


def is_complete(spec: Spec, cell: Cell) -> bool:
    """Whether its run folder is there; run folders are whole or absent."""
    return is_run(spec.out / cell.folder)


def _replace(path: Path, text: str) -> None:
    """Write a file whole: a stop in between leaves the old one."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(encoded(text))
    os.replace(new, path)  # noqa: PTH105 - the same as Path.replace, and says what is meant
