"""Run folders: written whole or not at all, readable without headscope."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from safetensors import SafetensorError

from headscope.errors import RunError, WriteError, nearest
from headscope.runs.atlas import Atlas, atlas_names, atlas_of, check_unpacked, unpacked
from headscope.runs.folder import (
    EVIDENCE,
    HEADS,
    REPORT,
    RUN,
    RUN_FILES,
    SUMS,
    TALLY,
    check_files,
    checksums,
    encoded,
    inside,
    is_run,
    readable_path,
)
from headscope.runs.patterns import StoredExamples, read_means, write_examples, write_means
from headscope.runs.recorded_paths import inward, outward
from headscope.runs.run_json import FORMAT_VERSION, SHA256, VERSION, read_record, record_bytes
from headscope.runs.sums import read_tallies, write_tallies
from headscope.runs.tables import RUN_TABLES, RunTable, read_evidence, read_heads, table_to_csv
from headscope.runs.workplace import (
    NEW,
    check_free,
    check_left,
    check_room,
    put,
    unwritable,
    workplace,
)
from headscope.runs.write import check_writable, write_file
from headscope.statistics.result import Result, layers_of


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
    tables = {
        table.attribute: table.read(folder / table.file)
        for table in RUN_TABLES
        if (folder / table.file).is_file()
    }
    means, pictures = read_means(folder)
    run = Result(
        read_heads(folder / HEADS),
        read_evidence(folder / EVIDENCE),
        rules,
        inward(info, folder),
        examples=StoredExamples(folder),
        means=means,
        pictures=pictures,
        **tables,
    )
    if not with_tally:
        return run
    shape = (layers_of(run), int(run.heads["head"].max()) + 1)
    tally, twin = read_tallies(folder, (*rules, *info.get("parts", ())), shape)
    return replace(run, tally=tally, twin=twin)


def _load_atlas(atlas: Atlas, *, with_tally: bool) -> Result:
    if with_tally:
        raise RunError(f"{atlas.name} is an atlas, which holds no sums; only a run folder has them")
    folder = unpacked(atlas)
    try:
        return load(folder)
    except RunError as error:
        raise atlas.damaged(error) from error


def save_study_table(
    run: Result,
    folder: Path,
    table: RunTable,
    *,
    report: Callable[[], str],
    overwrite: bool = False,
) -> Path:
    """Put what a study found, and the report that shows it, into the folder of its run.

    Args:
        run: with the table.
        folder: of the run.
        table: which one.
        report: draws the page again.
        overwrite: replace a table that is there already.

    Returns:
        The table's file.

    Raises:
        RunError: there is no such run, it has such a table already (and `overwrite` is off), or
            the folder cannot be written.
    """
    check_study_table(folder, table, overwrite=overwrite)
    content = getattr(run, table.attribute)
    if content is None:
        raise RunError(f"this run has no table of {table.title}; {table.study} makes one")
    texts = {table.file: table_to_csv(content), REPORT: report()}
    if table.changes_heads:
        texts[HEADS] = table_to_csv(run.heads)
    with workplace(folder) as work:
        new = work / NEW
        try:
            new.mkdir()
            for name in RUN_FILES:
                if name not in texts and (folder / name).exists():
                    (new / name).parent.mkdir(exist_ok=True)
                    shutil.copy2(inside(folder, name), new / name)
            for name, text in texts.items():
                write_file(new / name, encoded(text))
            info = json.loads((new / RUN).read_text(encoding="utf-8")) | {"files": checksums(new)}
            write_file(new / RUN, record_bytes(info), overwrite=True)
            put(work, folder)
        except (OSError, WriteError) as error:
            raise unwritable(folder, error) from error
    return folder / table.file


def check_study_table(folder: Path, table: RunTable, *, overwrite: bool) -> None:
    """Refuse a run folder into which a study's table cannot be put, before minutes of work.

    Raises:
        RunError: see `save_study_table`.
    """
    check_unpacked(folder)
    try:
        check_left(folder)
        check_writable(folder)
        paths = [folder / name for name in RUN_FILES]
        check_room(folder, sum(path.stat().st_size for path in paths if path.is_file()))
        if not overwrite and (folder / table.file).exists():
            raise RunError(
                f"{folder / table.file} exists already: this run was {table.done} before; add "
                "--overwrite to replace it"
            )
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error


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
        keep_sums = bool(run.info.get("settings", {}).get("keep_sums"))
        write_tallies(folder, run.tally, run.twin, keep_sums=keep_sums)
    info = {
        VERSION: FORMAT_VERSION,
        **outward(run.info, destination),
        "relations": {name: asdict(rule) for name, rule in run.rules.items()},
        "files": checksums(folder),  # last, because it states what the others are
    }
    write_file(folder / RUN, record_bytes(info))
