"""Where paths lead."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def resolved(path: Path) -> Path:
    """The real path; a loop of links is an OSError as every other fault of a path is.

    Raises:
        OSError: it leads nowhere.
    """
    try:
        return path.resolve()
    except RuntimeError as error:  # what Python before 3.13 says of a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def real_name(path: Path) -> str:
    """The name of the file or folder that a path leads to; its own where it leads nowhere.

    >>> real_name(Path("texts/../texts/gum"))
    'gum'
    """
    try:
        return resolved(path).name
    except OSError:
        return path.name


def unusable(path: Path) -> str | None:
    """What stands in place of a file, in words; None for a file, or if nothing is there."""
    if path.is_symlink() and not exists(path):
        return f"a link to {str(path.readlink())!r}, where nothing is"
    if path.is_file() or not exists(path):
        return None
    if path.is_dir():
        return "a folder"
    return "a pipe" if path.is_fifo() else "a device or a socket"


def exists(path: Path) -> bool:
    r"""True where something is there; never of a name that no file can have.

    >>> exists(Path()), exists(Path("x" * 5000)), exists(Path("NUL \0"))
    (True, False, False)
    """
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a NUL in it
        return False
