"""Run folders: written whole or not at all, readable without headscope."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from headscope.cache import UNREADABLE, StoredExamples, write_examples
from headscope.causal import read_causes
from headscope.errors import RunError
from headscope.folder import (
    EVIDENCE,
    HEADS,
    REPORT,
    RUN,
    TALLY,
    check_files,
    checksums,
    encoded,
    is_run,
    readable,
)
from headscope.record import read_record
from headscope.run import Run
from headscope.tables import check_tables, read_evidence, read_heads, table_to_csv
from headscope.tally import Tally
from headscope.workplace import NEW, OLD, unwritable, workplace

if TYPE_CHECKING:
    from numpy import ndarray


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something that a run must not replace.

    Raises:
        RunError: a run is there already (and `overwrite` is off), or other files are.
    """
    try:
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{folder} is a file; --out names a folder")
        if folder.is_dir() and any(folder.iterdir()):
            if not is_run(folder):
                raise RunError(
                    f"{folder} holds other files and no run; choose an empty or new folder"
                )
            if not overwrite:
                raise RunError(
                    f"{folder} holds a run already; choose another --out, or add --overwrite"
                )
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error


def save(run: Run, folder: Path, *, overwrite: bool = False) -> Path:
    """Write the tables, the sums, the examples' patterns and the report.

    Raises:
        RunError: see `check_free`; or the folder cannot be written, or another process is at it.
    """
    with workplace(folder) as work:
        return save_by(work, run, folder, overwrite=overwrite)


def save_by(work: Path, run: Run, folder: Path, *, overwrite: bool) -> Path:
    """Write a run folder by way of its workplace, so that it is either complete or absent.

    Args:
        work: the run folder's workplace; see `workplace`.
        run: what to write.
        folder: the run folder.
        overwrite: replace a run that is there already.

    Raises:
        RunError: see `save`.
    """
    check_free(folder, overwrite=overwrite)
    if run.tally is None and (folder / TALLY).is_file():
        raise RunError(
            f"{folder} holds the sums of its run, and this one was loaded without them; "
            "load it with_tally=True, or save it elsewhere"
        )
    try:
        place = folder.resolve()  # where a link leads is replaced, not the link
        (work / NEW).mkdir()
        _write(run, work / NEW)
        if place.exists():
            place.rename(work / OLD)
        (work / NEW).rename(place)
    except (OSError, SafetensorError) as error:
        raise unwritable(folder, error) from error
    return folder


def load(folder: str | Path, *, with_tally: bool = False) -> Run:
    """Read a run folder back.

    Each file is compared with the checksum that `run.json` states. A folder without checksums was
    written by an older headscope: it is read, and a note of the run says that it was not checked.

    Args:
        folder: the folder that `save` wrote.
        with_tally: read the sums too, which only merging needs.

    Raises:
        RunError: no run there, or one that was altered, cut short, or put together by hand.
    """
    folder = Path(folder)
    if not is_run(folder):
        raise RunError(
            f"{folder!s:.200}: no run here ({RUN} is missing); write one with headscope classify"
        )
    info, rules = read_record(readable(folder, RUN))
    files = info.pop("files", None)  # of this folder, not of the run
    if files is None:
        info["notes"] = [*info.get("notes", ()), *({UNCHECKED} - {*info.get("notes", ())})]
    else:
        check_files(folder, files)
    evidence = read_evidence(readable(folder, EVIDENCE))
    heads = read_heads(readable(folder, HEADS))
    try:
        check_tables(heads, evidence, rules)
    except RunError as error:
        raise RunError(f"{folder}: this run is damaged: {error}") from error
    tally, twin = None, None
    if with_tally:
        shape = (int(heads["layer"].max()) + 1, int(heads["head"].max()) + 1)
        tally, twin = _read_tallies(readable(folder, TALLY), tuple(rules), shape)
    causes = read_causes(folder)
    return Run(heads, evidence, rules, info, tally, twin, StoredExamples(folder), causes)


UNCHECKED = (
    "read from a folder of an older headscope that states no checksums: whether its files are "
    "those that were written was not checked"
)


def _write(run: Run, folder: Path) -> None:
    (folder / EVIDENCE).write_bytes(encoded(table_to_csv(run.evidence)))
    (folder / HEADS).write_bytes(encoded(table_to_csv(run.heads)))
    if run.examples:
        write_examples(run.examples, folder)
    (folder / REPORT).write_bytes(encoded(run.report()))
    if run.tally is not None:
        arrays = dict(run.tally.arrays())
        if run.twin is not None:
            arrays |= {f"{_TWIN}{name}": array for name, array in run.twin.arrays().items()}
        save_file({name: np.asarray(a, order="C") for name, a in arrays.items()}, folder / TALLY)
    rules = {name: asdict(rule) for name, rule in run.rules.items()}
    # last, because it states what the others are
    info = {**run.info, "relations": rules, "files": checksums(folder)}
    text = json.dumps(info, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / RUN).write_bytes(encoded(text + "\n"))


_TWIN = "twin."


def _read_tallies(
    path: Path, relations: tuple[str, ...], shape: tuple[int, int]
) -> tuple[Tally, Tally | None]:
    try:
        arrays: dict[str, ndarray] = load_file(path)
    except UNREADABLE as error:
        raise RunError(f"{path}: no safetensors file of a run: {error!s:.200}") from error
    twin = {n.removeprefix(_TWIN): a for n, a in arrays.items() if n.startswith(_TWIN)}
    own = {n: a for n, a in arrays.items() if not n.startswith(_TWIN)}
    return (
        tally_of(path, own, relations, shape),
        tally_of(path, twin, relations, shape) if twin else None,
    )


def tally_of(
    path: Path, arrays: dict[str, ndarray], relations: tuple[str, ...], shape: tuple[int, int]
) -> Tally:
    """Sums that were read from a file.

    Raises:
        RunError: they are none of such a run.
    """
    tally = Tally.zeros(relations, *shape)
    wanted = tally.arrays()
    if odd := sorted(wanted.keys() ^ arrays.keys()):
        raise RunError(f"{path}: the sums {odd[0]!r:.100} are missing, or are none of a run")
    for name, array in wanted.items():
        found = arrays[name]
        if found.shape != array.shape or found.dtype != array.dtype:
            raise RunError(
                f"{path}: {name} has shape {found.shape} of {found.dtype}, expected {array.shape} "
                f"of {array.dtype}"
            )
        if not np.isfinite(found).all():
            raise RunError(f"{path}: {name} holds what is no finite number")
        array[...] = found
    return tally
