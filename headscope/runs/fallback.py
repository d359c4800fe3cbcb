"""Folders on other disks, for what was worked out and has no room in its own place."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headscope.errors import WriteError
from headscope.models.packaged import cache_root
from headscope.runs.write import write_files

_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OF_ROOM = tuple(f"(os error {number})" for number in _FULL_DISK)
"""How safetensors, whose files Rust writes, says the same."""


def lacks_room(error: BaseException) -> bool:
    """True if something could not be written because a disk, a quota or a file may not grow."""
    while True:
        if isinstance(error, OSError) and error.errno in _FULL_DISK:
            return True
        if any(words in str(error) for words in _OF_ROOM):
            return True
        if error.__cause__ is None:
            return False
        error = error.__cause__


def fallback_folders(work: Path) -> list[Path]:
    """Folders for sums that do not fit into a run's workplace: the cache, else temporary.

    A run always has the same ones, so that the next process finds them.

    Args:
        work: the run folder's workplace; see `headscope.runs.workplace.workplace`.
    """
    name = hashlib.sha256(os.fsencode(work)).hexdigest()[:16]
    owner = os.getuid() if hasattr(os, "getuid") else 0
    temporary = Path(tempfile.gettempdir()) / f"headscope-{owner}-{name}"
    cache = cache_root()
    return [temporary] if cache is None else [cache / "unfinished" / name, temporary]


def claim(folder: Path) -> Path:
    """Make such a folder, or take it over.

    Raises:
        OSError: it cannot be made, or is somebody else's.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_own(folder):
        raise PermissionError(errno.EPERM, "it belongs to somebody else", str(folder))
    return folder


def is_own(path: Path) -> bool:
    """True if a folder is this user's alone: anyone may put files into a temporary folder."""
    try:
        facts = path.lstat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return stat.S_ISDIR(facts.st_mode)
    shared = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not shared


def keep_files(files: Mapping[str, bytes]) -> Path | None:
    """Write files into a new temporary folder; None where they do not fit there either.

    Args:
        files: the content of each, by its name.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="headscope-"))
    except OSError:
        return None
    try:
        write_files({folder / name: content for name, content in files.items()})
    except WriteError:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    return folder
