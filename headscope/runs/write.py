"""The one writer of files: each whole or not at all, and nothing replaced unless that was asked."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from headscope.errors import WriteError
from headscope.paths import resolved

LEFTOVERS = ".headscope-*.new"
"""What a killed process can leave behind."""

_PROBE = 4096
"""Bytes that a disk must have room for, whatever is written there."""
Fill = Callable[[Path], object]
"""What writes a file's content to a path that it is given."""


def write_file(path: Path, content: bytes | Fill, *, overwrite: bool = False) -> Path:
    """Write a file beside its place and move it there; see `write_files`."""
    write_files({path: content}, overwrite=overwrite)
    return path


def write_files(files: Mapping[Path, bytes | Fill], *, overwrite: bool = False) -> None:
    """Write files: all of them, each whole, or none.

    Each is written beside its place, forced to the disk, and moved there, so that a stop or a full
    disk leaves what was there before. A link is kept, and the file that it names is written. A new
    file has the rights that the umask leaves; one that is replaced keeps its own. Into a device
    or a pipe the content is simply written.

    Args:
        files: the content of each file, or a function that writes it to the path it is given.
        overwrite: replace what is there.

    Raises:
        WriteError: a file is there already, or cannot be written.
    """
    for path in files:
        check_target(path, overwrite=overwrite)
    temporary: dict[Path, Path] = {}
    placed: list[Path] = []
    try:
        for path, content in files.items():
            temporary[path] = _temporary_file(path, content)
        for path in files:
            _move(temporary[path], path, overwrite=overwrite)
            placed.append(path)
    except (OSError, ValueError) as error:
        for written in () if overwrite else placed:
            written.unlink()
        raise unwritable_file(path, error) from error
    finally:
        for new in temporary.values():
            with suppress(OSError):
                new.unlink(missing_ok=True)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that must not or cannot be written, before minutes of work end there.

    Raises:
        WriteError: it is there already (and `overwrite` is off), it is a folder, or its folder
            takes no files.
    """
    try:
        if path.is_dir():
            raise WriteError(f"{path} is a folder; name a file")
        if not overwrite and os.path.lexists(path) and not _is_stream(path):
            raise WriteError(f"{path} exists already; choose another name, or add --overwrite")
        for above in path.parents:
            if os.path.lexists(above) and not above.is_dir():
                raise WriteError(f"{path} cannot be written: {above} is no folder")
        if not _is_stream(path):
            check_writable(path)
    except (OSError, ValueError) as error:
        raise unwritable_file(path, error) from error


def check_writable(path: Path) -> None:
    """Refuse a file or folder that nothing can be put in the place of.

    A file is written there and removed: rights alone do not say what a file system takes.

    Raises:
        WriteError: the folder that it lies in takes no files, or its disk is full.
    """
    try:
        folder = existing(resolved(path).parent)
        probe = folder / _name()
        try:
            probe.write_bytes(bytes(_PROBE))
        finally:
            probe.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise unwritable_file(path, error) from error


def existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    return next(ancestor for ancestor in (folder, *folder.parents) if ancestor.exists())


def unwritable_file(path: Path, error: Exception) -> WriteError:
    """The error that says why a file or folder cannot be written."""
    reason = getattr(error, "strerror", None) or error
    return WriteError(f"{path!s:.200} cannot be written: {reason}")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the final one, moved into its place at the end and never left behind.

    Its files get the rights that the umask leaves, whatever their writers gave them.

    Raises:
        WriteError: a folder that holds something is there, or nothing can be written there.
    """
    try:
        destination = place_of(folder)
        destination.parent.mkdir(parents=True, exist_ok=True)
        new = destination.with_name(_name())
        new.mkdir()
    except (OSError, ValueError) as error:
        raise unwritable_file(folder, error) from error
    try:
        yield new
        for path in new.rglob("*"):
            if path.is_file():
                path.chmod(_rights(new) & 0o666)
                _force(path)
        new.rename(destination)  # which refuses to replace a file, or a folder that holds something
    except OSError as error:
        raise unwritable_file(folder, error) from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def place_of(folder: Path) -> Path:
    """The real path of a folder of results: one with a name, which another can be moved into.

    Raises:
        WriteError: it is the root of the file system.
        OSError: it leads nowhere.
    """
    destination = resolved(folder)
    if not destination.name:
        raise WriteError(
            f"{folder} is the root of the file system, which no folder of results can replace; "
            f"name a folder in it, such as {destination / 'results'}"
        )
    return destination


def _temporary_file(path: Path, content: bytes | Fill) -> Path:
    """A new file with the content, in the folder in which the path's file lies or will lie."""
    if _is_stream(path):  # a device or a pipe holds nothing that could be lost
        with path.open("wb") as stream:
            stream.write(_content(content))
        return path.with_name(_name())
    target = resolved(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(_name())
    try:
        with new.open("xb"):
            rights = _rights(target if target.exists() else new)
        if isinstance(content, bytes):
            new.write_bytes(content)
        else:
            content(new)
        new.chmod(rights)
        _force(new)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return new


def _content(content: bytes | Fill) -> bytes:
    if isinstance(content, bytes):
        return content
    raise OSError(None, "it is no regular file")


def _move(new: Path, path: Path, *, overwrite: bool) -> None:
    if _is_stream(path):
        return
    target = resolved(path)
    if overwrite:
        new.replace(target)
        return
    try:
        target.hardlink_to(new)  # unlike a renamed file, a link never replaces what came meanwhile
    except FileExistsError:
        raise
    except OSError:  # a file system that knows no hard links
        if os.path.lexists(target):
            raise
        new.rename(target)


def _is_stream(path: Path) -> bool:
    """True if something is there that is neither a file nor a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _name() -> str:
    return f".headscope-{secrets.token_hex(6)}.new"


def _rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _force(path: Path) -> None:
    """Have the system write a file to the disk now, so that a crash cannot leave it empty."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
