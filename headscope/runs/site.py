"""A folder of pages that headscope wrote: made whole, and replaced with what is the user's kept."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headscope.errors import WriteError
from headscope.runs.folder import encoded
from headscope.runs.place import check_left
from headscope.runs.write import new_folder, resolved, unwritable, write_file

MANIFEST = "gallery.json"
"""In the folder: which files headscope wrote there. All others are the user's."""


def check_site(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something that pages must not replace.

    Raises:
        WriteError: it is a file, holds other files than a gallery's, or a gallery (and `overwrite`
            is off).
        RunError: it is the working folder or holds it.
    """
    try:
        if os.path.lexists(folder) and not folder.is_dir():
            raise WriteError(f"{folder} is a file; --out names a folder")
        check_left(folder)
        if not folder.is_dir() or not any(folder.iterdir()):
            return
        if not (folder / MANIFEST).is_file():
            raise WriteError(
                f"{folder} holds other files and no gallery; choose an empty or new folder"
            )
        if not overwrite:
            raise WriteError(
                f"{folder} holds a gallery already; choose another --out, or add --overwrite"
            )
        _own(folder)
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error


@contextmanager
def new_site(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write pages into, which takes its place when it is whole.

    What an older gallery wrote there goes; what somebody else put there, such as `CNAME`, stays.

    Raises:
        WriteError: see `check_site`; or a page has the place of a file that is not headscope's.
    """
    check_site(folder, overwrite=overwrite)
    old: Path | None = None
    kept: list[Path] = []
    try:
        with new_folder(folder) as new:
            yield new
            own = sorted(p.relative_to(new).as_posix() for p in new.rglob("*") if p.is_file())
            text = json.dumps({"files": [*own, MANIFEST]}, indent=1) + "\n"
            write_file(new / MANIFEST, encoded(text))
            place = resolved(folder)
            if place.is_dir() and any(place.iterdir()):
                kept = _others(place)
                _check_ways(place, new, kept)
                place.rename(new.with_name(f"{new.name}.old"))
                old = new.with_name(f"{new.name}.old")
    except BaseException:
        if old is not None:
            old.rename(resolved(folder))
        raise
    if old is not None:
        _move(kept, old, resolved(folder))


def _own(folder: Path) -> set[str]:
    """The files that the gallery in a folder wrote.

    Raises:
        WriteError: its list of them is damaged.
    """
    path = folder / MANIFEST
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name) for name in files} if isinstance(files, list) else set()
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WriteError(
            f"{path} is damaged, so that what is headscope's in {folder} cannot be told from what "
            "is not; remove the folder yourself, or choose another --out"
        ) from error


def _others(place: Path) -> list[Path]:
    """Files and links in a gallery's folder that it did not write, as seen from there."""
    own, found = _own(place), list[Path]()
    for above, folders, names in os.walk(place):
        links = [name for name in folders if (Path(above) / name).is_symlink()]
        every = [(Path(above) / name).relative_to(place) for name in (*names, *links)]
        found += [path for path in every if path.as_posix() not in own]
    return found


def _check_ways(place: Path, new: Path, kept: Sequence[Path]) -> None:
    for path in kept:
        parts = [path, *path.parents[:-1]]
        if os.path.lexists(new / path) or any((new / part).is_file() for part in parts):
            raise WriteError(
                f"{place / path} is in the way, and no gallery wrote it; move it elsewhere"
            )


def _move(kept: Sequence[Path], old: Path, place: Path) -> None:
    for path in kept:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (old / path).rename(place / path)
    shutil.rmtree(old, ignore_errors=True)
