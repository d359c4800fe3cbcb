"""Run folders: written whole or not at all, readable without headscope."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from headscope.errors import RunError, nearest
from headscope.measure.tally import Tally
from headscope.runs.atlas import Atlas, atlas_names, atlas_of, unpacked
from headscope.runs.folder import (
    EVIDENCE,
    HEADS,
    REPORT,
    RULES,
    RUN,
    SUMS,
    TALLY,
    check_files,
    checksums,
    encoded,
    is_run,
    readable_path,
)
from headscope.runs.means import read_means, write_means
from headscope.runs.packed_sums import read_sums, write_sums
from headscope.runs.pattern_cache import UNREADABLE, StoredExamples, write_examples
from headscope.runs.recorded_paths import inward, outward
from headscope.runs.run_json import (
    ATTENTION_LAYERS,
    FORMAT_VERSION,
    SHA256,
    VERSION,
    read_record,
    signed,
)
from headscope.runs.run_tables import RULE_TABLE, RUN_TABLES
from headscope.runs.tables import check_tables, read_evidence, read_heads, table_to_csv
from headscope.runs.workplace import NEW, check_free, put, unwritable, workplace
from headscope.runs.write import write_file
from headscope.statistics.result import Result

if TYPE_CHECKING:
    from numpy import ndarray


def save(run: Result, folder: Path, *, report: Callable[[], str], overwrite: bool = False) -> Path:
    """Write the tables, the sums, the examples' patterns and the report.

    Raises:
        RunError: see `check_free`; or the folder cannot be written, or another process is at it.
    """
    with workplace(folder) as work:
        return save_by(work, run, folder, report=report, overwrite=overwrite)


def save_by(
    work: Path, run: Result, folder: Path, *, report: Callable[[], str], overwrite: bool
) -> Path:
    """Write a run folder by way of its workplace, so that it is either complete or absent.

    Of a run that is replaced nothing stays; files that headscope did not write are kept.

    Args:
        work: the run folder's workplace; see `workplace`.
        run: what to write.
        folder: the run folder.
        report: draws the page that lies beside the tables.
        overwrite: replace a run that is there already.

    Raises:
        RunError: see `save`.
    """
    check_free(folder, overwrite=overwrite)
    if run.tally is None and any((folder / name).is_file() for name in (SUMS, TALLY)):
        raise RunError(
            f"{folder} holds the sums of its run, and this one was loaded without them; "
            "load it with_tally=True, or save it elsewhere"
        )
    try:
        (work / NEW).mkdir()
        _write(run, work / NEW, folder, report)
        put(work, folder)
    except (OSError, SafetensorError) as error:
        raise unwritable(folder, error) from error
    return folder


def load(folder: str | Path, *, with_tally: bool = False) -> Result:
    """Read a run folder back.

    Each file is compared with the checksum that `run.json` states.

    Args:
        folder: the folder that `save` wrote, `atlas:NAME`, or an atlas' file; the name of a model
            that has an atlas stands for it where no run folder is called so.
        with_tally: read the sums too, which merging, halves and the bootstrap need. Of the twin
            they are those over all blocks, in the first one, unless the run was to `keep_sums`.

    Raises:
        RunError: no run there, or one that was altered, cut short, put together by hand, or made
            by an earlier version.
        ChoiceError: no atlas of that name ships.
    """
    atlas = atlas_of(folder)
    if atlas is not None:
        return _load_atlas(atlas, with_tally=with_tally)
    folder = Path(folder)
    if not is_run(folder):
        raise RunError(
            f"{folder!s:.200}{nearest(str(folder), atlas_names())}: no run here ({RUN} is "
            "missing); write one with headscope classify"
        )
    info, rules = read_record(readable_path(folder, RUN))
    # of this folder, not of the run
    del info[VERSION], info["provenance"][SHA256]
    check_files(folder, info.pop("files"))
    evidence = read_evidence(readable_path(folder, EVIDENCE))
    heads = read_heads(readable_path(folder, HEADS))
    try:
        check_tables(heads, evidence, rules, info["model"].get(ATTENTION_LAYERS))
    except RunError as error:
        raise RunError(f"{folder}: this run is damaged: {error}") from error
    info = inward(info, folder)
    tally, twin = None, None
    if with_tally:
        numbers = tuple(map(int, sorted(heads["layer"].unique())))
        shape = (numbers, int(heads["head"].max()) + 1)
        tally, twin = _read_tallies(folder, (*rules, *info.get("parts", ())), shape)
    tables = {table.attribute: table.read(folder, heads, info) for table in RUN_TABLES}
    if tables[RULE_TABLE.attribute] is not None and "rule" not in heads:
        raise RunError(f"{folder}: this run is damaged: {RULES} is there, but {HEADS} has no rules")
    means, pictures = read_means(folder, heads)
    return Result(
        heads,
        evidence,
        rules,
        info,
        tally,
        twin,
        StoredExamples(folder),
        means=means,
        pictures=pictures,
        **tables,
    )


def _load_atlas(atlas: Atlas, *, with_tally: bool) -> Result:
    if with_tally:
        raise RunError(f"{atlas.name} is an atlas, which holds no sums; only a run folder has them")
    folder = unpacked(atlas)
    try:
        return load(folder)
    except RunError as error:
        raise atlas.damaged(error) from error


def _write(run: Result, folder: Path, destination: Path, report: Callable[[], str]) -> None:
    """Write a run into a folder that will be moved to its place."""
    write_file(folder / EVIDENCE, encoded(table_to_csv(run.evidence)))
    write_file(folder / HEADS, encoded(table_to_csv(run.heads)))
    for row in RUN_TABLES:
        table = getattr(run, row.attribute)
        if table is not None:
            write_file(folder / row.file, encoded(table_to_csv(table)))
    if run.examples:
        write_examples(run.examples, folder)
    if run.means is not None or run.pictures:
        write_means(run.means, run.pictures, folder)
    write_file(folder / REPORT, encoded(report()))
    if run.tally is not None:
        if run.info.get("settings", {}).get("keep_sums"):
            _write_tallies(folder / TALLY, run.tally, run.twin)
        else:
            write_sums(folder / SUMS, run.tally, run.twin)
    rules = {name: asdict(rule) for name, rule in run.rules.items()}
    # last, because it states what the others are
    info = {
        VERSION: FORMAT_VERSION,
        **outward(run.info, destination),
        "relations": rules,
        "files": checksums(folder),
    }
    write_file(folder / RUN, record_bytes(signed(info)))


def record_bytes(info: dict[str, Any]) -> bytes:
    """`run.json` as it is written."""
    return encoded(json.dumps(info, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


_TWIN = "twin."


def _write_tallies(path: Path, tally: Tally, twin: Tally | None) -> None:
    """Write all sums as they are."""
    arrays = dict(tally.arrays())
    if twin is not None:
        twin_arrays = {k: v for k, v in twin.arrays().items() if k not in _STIMULUS_MEANS}
        arrays |= {f"{_TWIN}{name}": array for name, array in twin_arrays.items()}
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    write_file(path, lambda new: save_file(contiguous, new))


def _read_tallies(
    folder: Path, relations: tuple[str, ...], shape: tuple[Sequence[int], int]
) -> tuple[Tally, Tally | None]:
    """The sums of a run and of its twin: all of them, or those that are packed."""
    if os.path.lexists(folder / SUMS):
        return read_sums(readable_path(folder, SUMS), relations, shape)
    path = readable_path(folder, TALLY)
    try:
        arrays: dict[str, ndarray] = load_file(path)
    except UNREADABLE as error:
        raise RunError(f"{path}: no safetensors file of a run: {error!s:.200}") from error
    twin = {n.removeprefix(_TWIN): a for n, a in arrays.items() if n.startswith(_TWIN)}
    model_arrays = {n: a for n, a in arrays.items() if not n.startswith(_TWIN)}
    return (
        tally_of(path, model_arrays, relations, shape),
        tally_of(path, twin, relations, shape) if twin else None,
    )


def tally_of(
    path: Path,
    arrays: dict[str, ndarray],
    relations: tuple[str, ...],
    shape: tuple[int | Sequence[int], int],
) -> Tally:
    """Sums that were read from a file; `shape` is their layers and heads as for `Tally.zeros`.

    Raises:
        RunError: they are none of such a run.
    """
    tally = Tally.zeros(relations, *shape)
    expected = tally.arrays()
    arrays = {name: expected[name] for name in _STIMULUS_MEANS} | arrays
    if odd := sorted(expected.keys() ^ arrays.keys()):
        raise RunError(f"{path}: the sums {odd[0]!r:.100} are missing, or are none of a run")
    for name, array in expected.items():
        stored = arrays[name]
        if stored.shape != array.shape or stored.dtype != array.dtype:
            raise RunError(
                f"{path}: {name} has shape {stored.shape} of {stored.dtype}, expected "
                f"{array.shape} of {array.dtype}"
            )
        if not np.isfinite(stored).all():
            raise RunError(f"{path}: {name} holds what is no finite number")
        array[...] = stored
    return tally


_STIMULUS_MEANS = ("profile.stimulus_mean", "profile.stimulus_queries")
"""Sums that are not written of a twin: nothing draws them."""
