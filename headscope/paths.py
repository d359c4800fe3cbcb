"""Paths that users give: the places they lead to, and the files that are read there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from headscope.errors import HeadscopeError, nearest_name

RUN_RECORD = "run.json"
"""Name of the file that makes a folder the folder of a run."""
ATLAS_PREFIX = "atlas:"
"""Start of the name of a run that ships."""


def resolved(path: Path) -> Path:
    """The real path; `Path.resolve` would raise a RuntimeError for a loop of links."""
    return Path(os.path.realpath(path))


def exists(path: Path) -> bool:
    r"""True if something is there; False for a name that no file can have.

    >>> exists(Path()), exists(Path("x" * 5000)), exists(Path("NUL \0"))
    (True, False, False)
    """
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a NUL in it
        return False


def nearest_place(name: str, reserved: Iterable[str]) -> str:
    """The reserved name, or else the file or folder, that a mistyped one may mean, for a message.

    Args:
        name: a name or a path where nothing is; its folder may not be there either.
        reserved: names that stand for something without a path.

    >>> nearest_place("smolm2", ["smollm2"]), nearest_place("no_folder/smolm2", ["smollm2"])
    (' (is smollm2 meant?)', '')
    """
    suggestion = nearest_name(name, reserved)
    if suggestion:
        return suggestion
    # only last names are compared: what stands before them is the same
    path = Path(os.path.expanduser(name))  # noqa: PTH111 - Path.expanduser raises without a home
    try:
        entries = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        return ""
    return nearest_name(path.name, entries, folder=name.rstrip("/").removesuffix(path.name))


def given_file(path: str | Path, would_do: str) -> bytes:
    """The bytes of a file that a user names.

    Raises:
        HeadscopeError: there is no file, such as a pipe, which may never end, or it cannot be read.
    """
    try:
        if not Path(path).is_file():
            raise HeadscopeError(f"{path} is not a file; give {would_do}")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise HeadscopeError(f"{path}: cannot be read ({reason}); give {would_do}") from error
