"""Replacement of a run folder, and whether it may be: whole, with what is not headscope's kept."""

from __future__ import annotations

from pathlib import Path

from headscope.errors import RunError
from headscope.paths import resolved
from headscope.runs.folder import is_run, move_others, remove_own
from headscope.runs.lock import NEW, OLD, unwritable
from headscope.runs.write import place_of


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


def put(work: Path, folder: Path) -> None:
    """Move the run that was written into its place, and what is the user's back to it."""
    destination = resolved(folder)  # where a link leads is replaced, not the link
    if destination.exists():
        destination.rename(work / OLD)
    (work / NEW).rename(destination)
    if (work / OLD).exists():
        move_others(work / OLD, destination)
        remove_own(work / OLD)
