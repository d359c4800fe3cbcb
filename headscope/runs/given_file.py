"""A file that the user names: read whole, if it is one and not too large."""

from __future__ import annotations

from pathlib import Path

from headscope.errors import HeadscopeError

MOST_BYTES = 64 * 2**20


def given_file(path: str | Path, would_do: str, *, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file.

    Args:
        path: what was given.
        would_do: what an error says that would do.
        most: the largest file that is read.

    Raises:
        HeadscopeError: there is no such file, a folder or a pipe, which may never end, or more
            bytes.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise HeadscopeError(f"{path}: no file; give {would_do}")
        with path.open("rb") as file:
            raw = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path"
        raise HeadscopeError(f"{path}: cannot be read ({reason}); give {would_do}") from error
    if len(raw) > most:
        raise HeadscopeError(f"{path}: more than {most:,} bytes; give {would_do}")
    return raw
