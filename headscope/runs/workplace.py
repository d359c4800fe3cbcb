"""The folder beside a run folder where all that is not finished lies, for one process at a time.

From there a run folder is replaced whole, with what is not headscope's kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from headscope.errors import RunError, RunStoppedError
from headscope.paths import resolved
from headscope.runs.folder import is_run, move_others, remove_own
from headscope.runs.write import LEFTOVERS, existing, place_of

LOCK, CHECKPOINT = "lock", "state.safetensors"
NEW, OLD = "new", "old"
"""A run folder before it is moved into place, and the one that it replaces."""


@contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """`.NAME.partial` beside a run folder, locked; removed afterwards unless a checkpoint is in it.

    What a killed process left behind is put right first: a run that was being replaced is back in
    its place, and half-written files are gone.

    Args:
        folder: the run folder, which need not exist.

    Raises:
        RunError: another process is at work on this run folder, or nothing can be written there.
        RunStoppedError: the work was interrupted, and a checkpoint says how far it had come.
    """
    try:
        destination = place_of(folder)
        work = destination.with_name(f".{destination.name}.partial")
        parent_is_new = not destination.parent.exists()
        if work.is_symlink():
            raise RunError(f"{work} is a link, and unfinished runs lie beside their folder")
        work.mkdir(parents=True, exist_ok=True)
        lock = FileLock(work / LOCK)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise RunError(
            f"{folder}: another process is writing this run; wait for it, or choose another --out"
        ) from error
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error
    try:
        try:
            _tidy(work, destination)
        except OSError as error:
            raise unwritable(folder, error) from error
        yield work
    except KeyboardInterrupt as stop:
        if not (work / CHECKPOINT).is_file():
            raise
        raise RunStoppedError(
            f"stopped; what is done is kept in {work}, and the same command goes on from there"
        ) from stop
    finally:
        with suppress(OSError):  # what cannot be removed now is put right by the next process
            _tidy(work, destination)
            if not (work / CHECKPOINT).exists():
                (work / LOCK).unlink()
                work.rmdir()
                if parent_is_new:  # a run that failed leaves no empty folder around its own
                    destination.parent.rmdir()
        lock.release()


def unwritable(folder: Path, error: Exception) -> RunError:
    """The error that says why a run folder cannot be written."""
    reason = getattr(error, "strerror", None) or error
    return RunError(f"{folder!s:.200} cannot be written: {reason}")


def _tidy(work: Path, destination: Path) -> None:
    if (work / OLD).exists():
        if destination.exists():
            move_others(work / OLD, destination)
            remove_own(work / OLD)
        else:
            (work / OLD).rename(destination)
    remove_own(work / NEW)
    for path in work.glob(LEFTOVERS):
        path.unlink()


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something that a run must not replace.

    Raises:
        RunError: a run is there already (and `overwrite` is off), or other files are.
    """
    try:
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{folder} is a file; --out names a folder")
        check_left(folder)
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


def check_left(folder: Path) -> None:
    """Refuse to replace the folder in which someone works, or one that holds it.

    Raises:
        RunError: it is such a folder.
        WriteError: it is the root of the file system.
    """
    destination = place_of(folder)
    if destination.exists() and Path.cwd().is_relative_to(destination):
        raise RunError(
            f"{folder} is the working folder or holds it, and a run is moved into place whole; "
            f"change to another folder and name {destination.name} from there"
        )


def check_room(folder: Path, needed: int) -> None:
    """Refuse a run folder that its disk has no room for.

    Raises:
        RunError: less is free there.
    """
    try:
        free = shutil.disk_usage(existing(resolved(folder).parent)).free
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error
    if free < needed:
        raise RunError(
            f"{folder} will take at least {_megabytes(needed)}, and {_megabytes(free)} are free "
            f"there; free {_megabytes(needed - free)}, ask fewer --types, or choose another --out"
        )


def _megabytes(size: int) -> str:
    return f"{size / 10**6:,.1f} MB"


def put(work: Path, folder: Path) -> None:
    """Move the run that was written into its place, and what is the user's back to it."""
    destination = resolved(folder)  # where a link leads is replaced, not the link
    if destination.exists():
        destination.rename(work / OLD)
    (work / NEW).rename(destination)
    if (work / OLD).exists():
        move_others(work / OLD, destination)
        remove_own(work / OLD)
