"""Paths that users give: the places they lead to, and the files that are read there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from headscope.errors import HeadscopeError

MOST_BYTES = 64 * 2**20
"""Bytes of the largest file that is read as a whole."""


def resolved(path: Path) -> Path:
    """The real path; a loop of links is an OSError, like every other fault of a path.

    Raises:
        OSError: it leads nowhere.
    """
    try:
        return path.resolve()
    except RuntimeError as error:  # a loop, in Python before 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error


def real_name(path: Path) -> str:
    """The name of the file or folder that a path leads to; its own if it leads nowhere.

    >>> real_name(Path("texts/../texts/gum"))
    'gum'
    """
    try:
        return resolved(path).name
    except OSError:
        return path.name


def unusable(path: Path) -> str | None:
    """Words for what stands in place of a file; None for a file, or if nothing is there."""
    if path.is_symlink() and not exists(path):
        return f"a link to {str(path.readlink())!r}, where nothing is"
    if path.is_file() or not exists(path):
        return None
    if path.is_dir():
        return "a folder"
    return "a pipe" if path.is_fifo() else "a device or a socket"


def exists(path: Path) -> bool:
    r"""True if something is there; False for a name that no file can have.

    >>> exists(Path()), exists(Path("x" * 5000)), exists(Path("NUL \0"))
    (True, False, False)
    """
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a NUL in it
        return False


def given_file(path: str | Path, would_do: str) -> bytes:
    """The bytes of a file that a user names.

    Args:
        path: the file.
        would_do: what an error says that would do.

    Raises:
        HeadscopeError: there is no such file, a folder or a pipe, which may never end, or more
            bytes than `MOST_BYTES`.
    """
    path = Path(path)
    if reason := unusable(path):
        raise HeadscopeError(f"{path} is {reason}; give {would_do}")
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise HeadscopeError(f"{path}: cannot be read ({reason}); give {would_do}") from error
    if len(raw) > MOST_BYTES:
        raise HeadscopeError(f"{path}: more than {MOST_BYTES:,} bytes; give {would_do}")
    return raw
