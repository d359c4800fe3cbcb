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
    CAUSES,
    HEADS,
    KEYS_FROM,
    REPORT,
    RULES,
    RUN,
    RUN_FILES,
    checksums,
    encoded,
    inside,
    readable_path,
)
from headscope.runs.lock import NEW, unwritable, workplace
from headscope.runs.replace_folder import check_left, put
from headscope.runs.room import check_room
from headscope.runs.run_json import SHA256, signed
from headscope.runs.store import record_bytes
from headscope.runs.tables import table_to_csv
from headscope.runs.write import check_writable, write_file
from headscope.statistics.result import Result


def save_causes(
    run: Result, folder: Path, *, report: Callable[[], str], overwrite: bool = False
) -> Path:
    """Put what silencing a run's heads does, and the report that shows it, into its folder.

    Raises:
        RunError: there is no such run, it has such a table already (and `overwrite` is off), or
            the folder cannot be written.
    """
    check_causes(folder, overwrite=overwrite)
    if run.causes is None:
        raise RunError("this run has no table of causes; ablate makes one")
    _put_beside(folder, {CAUSES: table_to_csv(run.causes), REPORT: report()})
    return folder / CAUSES


def save_rules(
    run: Result, folder: Path, *, report: Callable[[], str], overwrite: bool = False
) -> Path:
    """Put what a run's heads do as rules, and the report that shows it, into its folder.

    Raises:
        RunError: see `save_causes`.
    """
    check_rules(folder, overwrite=overwrite)
    if run.accounts is None:
        raise RunError("this run has no table of rules; explain makes one")
    tables = {RULES: table_to_csv(run.accounts), HEADS: table_to_csv(run.heads)}
    _put_beside(folder, {**tables, REPORT: report()})
    return folder / RULES


def save_keys_from(
    run: Result, folder: Path, *, report: Callable[[], str], overwrite: bool = False
) -> Path:
    """Put whose writes each head's keys read most, and the report that draws it, into its folder.

    Raises:
        RunError: see `save_causes`.
    """
    check_keys_from(folder, overwrite=overwrite)
    if run.keys_from is None:
        raise RunError("this run has no table of whose writes keys read; weights makes one")
    _put_beside(folder, {KEYS_FROM: table_to_csv(run.keys_from), REPORT: report()})
    return folder / KEYS_FROM


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


def check_causes(folder: Path, *, overwrite: bool) -> None:
    """Refuse a run folder into which `save_causes` will not write, before minutes of work.

    Raises:
        RunError: see `save_causes`.
    """
    _check_beside(folder, CAUSES, "ablated", overwrite=overwrite)


def check_rules(folder: Path, *, overwrite: bool) -> None:
    """Refuse a run folder into which `save_rules` will not write, before minutes of work.

    Raises:
        RunError: see `save_causes`.
    """
    _check_beside(folder, RULES, "explained", overwrite=overwrite)


def check_keys_from(folder: Path, *, overwrite: bool) -> None:
    """Refuse a run folder into which `save_keys_from` will not write.

    Raises:
        RunError: see `save_causes`.
    """
    _check_beside(folder, KEYS_FROM, "weighed", overwrite=overwrite)


def _check_beside(folder: Path, name: str, done: str, *, overwrite: bool) -> None:
    check_unpacked(folder)
    try:
        check_left(folder)
        check_writable(folder)
        check_room(folder, _size(folder))
        if not overwrite and (folder / name).exists():
            raise RunError(
                f"{folder / name} exists already: this run was {done} before; add --overwrite "
                "to replace it"
            )
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error


def _size(folder: Path) -> int:
    """Bytes of a run's own files, which are copied before they are replaced."""
    paths = [folder / name for name in RUN_FILES]
    return sum(path.stat().st_size for path in paths if path.is_file())


def _state_again(folder: Path) -> None:
    """Have `run.json` state what the files are now; a folder that never did so still does not."""
    info = json.loads(readable_path(folder, RUN).read_text(encoding="utf-8"))
    if "files" in info:
        stated = info["files"] | checksums(folder)
        if SHA256 in info["provenance"]:
            info = signed(info | {"files": stated})
        else:  # a checksum of now would vouch for what was never checked
            info["files"] = stated
    write_file(folder / RUN, record_bytes(info), overwrite=True)
