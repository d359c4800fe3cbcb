"""Tables that studies put into a run's folder beside its evidence, and the page drawn again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from headscope.errors import RunError, WriteError
from headscope.runs.atlas import check_unpacked
from headscope.runs.fallback import keep_files
from headscope.runs.folder import (
    HEADS,
    REPORT,
    RUN,
    RUN_FILES,
    checksums,
    encoded,
    inside,
    readable_path,
)
from headscope.runs.room import check_room
from headscope.runs.run_json import signed
from headscope.runs.run_tables import RunTable
from headscope.runs.store import record_bytes
from headscope.runs.tables import table_to_csv
from headscope.runs.workplace import NEW, check_left, put, unwritable, workplace
from headscope.runs.write import check_writable, write_file
from headscope.statistics.result import Result


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
    tables = {table.file: table_to_csv(content)}
    if table.changes_heads:
        tables[HEADS] = table_to_csv(run.heads)
    _put_beside(folder, {**tables, REPORT: report()})
    return folder / table.file


def _put_beside(folder: Path, texts: dict[str, str]) -> None:
    """Write some files of a run folder again; all others stay as they are."""
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
            _state_again(new)
            put(work, folder)
        except (OSError, WriteError) as error:
            write_error = error if isinstance(error, WriteError) else unwritable(folder, error)
            fallback = keep_files({name: encoded(text) for name, text in texts.items()})
            where = (
                "" if fallback is None else f"; what was to be written there is kept in {fallback}"
            )
            raise RunError(f"{write_error}{where}") from error


def check_study_table(folder: Path, table: RunTable, *, overwrite: bool) -> None:
    """Refuse a run folder into which a study's table cannot be put, before minutes of work.

    Raises:
        RunError: see `save_study_table`.
    """
    check_unpacked(folder)
    try:
        check_left(folder)
        check_writable(folder)
        check_room(folder, _size(folder))
        if not overwrite and (folder / table.file).exists():
            raise RunError(
                f"{folder / table.file} exists already: this run was {table.done} before; add "
                "--overwrite to replace it"
            )
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error


def _size(folder: Path) -> int:
    """Bytes of a run's own files, which are copied before they are replaced."""
    paths = [folder / name for name in RUN_FILES]
    return sum(path.stat().st_size for path in paths if path.is_file())


def _state_again(folder: Path) -> None:
    """Have `run.json` state what the files are now."""
    info = json.loads(readable_path(folder, RUN).read_text(encoding="utf-8"))
    info = signed(info | {"files": info["files"] | checksums(folder)})
    write_file(folder / RUN, record_bytes(info), overwrite=True)
