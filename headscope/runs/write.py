"""Writing of results: each file whole or not at all, and nothing replaced unless that was asked."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headscope.errors import WriteError
from headscope.paths import resolved

LEFTOVERS = ".headscope-*.new"
"""Names of the files that a killed process can leave behind."""

_PROBE = 4096
"""Bytes that a disk must have room for, whatever is written there."""


def write_file(path: Path, content: bytes | str, *, overwrite: bool = False) -> Path:
    """Write a file beside its place and move it there; see `write_files`."""
    write_files({path: content}, overwrite=overwrite)
    return path


def write_files(files: Mapping[Path, bytes | str], *, overwrite: bool = False) -> None:
    """Write files, each whole; none is moved to its place before all are written.

    Each is written beside its place, forced to the disk, and moved there, so that a stop or a full
    disk leaves what was there before. A link is kept, and the file that it names is written. A new
    file has the rights that the umask leaves; one that is replaced keeps its own.

    Args:
        files: the content of each file; text is written as UTF-8.
        overwrite: replace what is there.

    Raises:
        WriteError: a file is there already, or cannot be written.
    """
    for path in files:
        check_target(path, overwrite=overwrite)
    # all are written beside their places first
    temporary: dict[Path, Path] = {}
    try:
        for path, content in files.items():
            with writing(path):
                target = resolved(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                temporary[path] = target.with_name(_name())
                _write(temporary[path], content)
                if target.exists():
                    temporary[path].chmod(stat.S_IMODE(target.stat().st_mode))
        # moving is quick, and each file is whole before and after
        for path, new in temporary.items():
            with writing(path):
                new.replace(resolved(path))
    finally:
        for new in temporary.values():
            new.unlink(missing_ok=True)


def check_suffix(path: Path, *suffixes: str) -> None:
    """Refuse a file with another suffix than these.

    Raises:
        WriteError: it has another one, or none.
    """
    if path.suffix.lower() not in suffixes:
        suffix = path.suffix or "a file without suffix"
        allowed = " or ".join(suffixes)
        raise WriteError(
            f"{path!s:.200}: cannot write {suffix}; name a file that ends in {allowed}"
        )


def check_target(path: Path, *, overwrite: bool, chosen_by: str = "file") -> None:
    """Refuse a file that must not or cannot be written, before minutes of work end there.

    Args:
        path: the file.
        overwrite: replace what is there.
        chosen_by: what another one is chosen by, for the message, such as `--out`.

    Raises:
        WriteError: it is there already (and `overwrite` is off), it is a folder, or its folder
            takes no files.
    """
    with writing(path):
        if path.is_dir():
            raise WriteError(f"{path} is a folder; name a file")
    if not overwrite:
        check_absent(path, f"choose another {chosen_by}, or add --overwrite")
    check_writable(path)


def check_absent(path: Path, remedy: str) -> None:
    """Refuse to write where there is something already.

    Raises:
        WriteError: there is; the message ends with the remedy.
    """
    with writing(path):
        if os.path.lexists(path):
            raise WriteError(f"{path} exists already; {remedy}")


def check_writable(path: Path) -> None:
    """Refuse a file or folder that nothing can be put in the place of.

    A file is written there and removed: rights alone do not say what a file system takes.

    Raises:
        WriteError: the folder that it lies in takes no files, or its disk is full.
    """
    with writing(path):
        # folders that are not there yet are made within the nearest that is
        absolute = resolved(path)
        folder = next((above for above in absolute.parents if above.exists()), absolute)
        probe = folder / _name()
        try:
            probe.write_bytes(bytes(_PROBE))
        finally:
            probe.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the file system into a WriteError that names the file or folder.

    Raises:
        WriteError: an OSError came, or a ValueError as of a NUL in the path.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise WriteError(f"{path!s:.200} cannot be written: {reason}") from error


def utf8(text: str) -> bytes:
    """Text as UTF-8; half of a surrogate pair becomes an escape that JSON reads back."""
    return text.encode("utf-8", "backslashreplace")


def _write(path: Path, content: bytes | str) -> None:
    """Write a new file through to the disk, so that a crash cannot leave it empty."""
    with path.open("xb") as file:
        file.write(utf8(content) if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def _name() -> str:
    return f".headscope-{secrets.token_hex(6)}.new"
