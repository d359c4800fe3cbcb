"""A folder that headscope wrote for others to serve, such as a gallery: made whole, and replaced
with what is the user's kept.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headscope.errors import WriteError
from headscope.paths import resolved
from headscope.runs.folder import encoded
from headscope.runs.workplace import check_left
from headscope.runs.write import check_writable, new_folder, unwritable_file, write_file


@dataclass(frozen=True)
class Site:
    """The kind of pages that are written into such a folder."""

    word: str
    """What a message calls it."""
    manifest: str
    """A file in the folder: which files headscope wrote there. All others are the user's."""


GALLERY = Site("gallery", "gallery.json")
HEADVIS = Site("HeadVis export", "headscope.json")


def check_site(folder: Path, *, overwrite: bool, site: Site = GALLERY) -> None:
    """Refuse a folder that holds something that must not be replaced.

    Raises:
        WriteError: it is a file, holds other files than such a site's, or a site (and `overwrite`
            is off).
        RunError: it is the working folder or holds it.
    """
    try:
        if os.path.lexists(folder) and not folder.is_dir():
            raise WriteError(f"{folder} is a file; --out names a folder")
        check_left(folder)
        check_writable(folder)
        if not folder.is_dir() or not any(folder.iterdir()):
            return
        if not (folder / site.manifest).is_file():
            raise WriteError(
                f"{folder} holds other files and no {site.word}; choose an empty or new folder"
            )
        if not overwrite:
            raise WriteError(
                f"{folder} holds a {site.word} already; choose another --out, or add --overwrite"
            )
        _site_files(folder, site)
    except (OSError, ValueError) as error:
        raise unwritable_file(folder, error) from error


@contextmanager
def new_site(folder: Path, *, overwrite: bool, site: Site = GALLERY) -> Iterator[Path]:
    """A folder to write files into, which takes its place when it is whole.

    What an older site wrote there goes; what somebody else put there, such as `CNAME`, stays.

    Raises:
        WriteError: see `check_site`; or a file has the place of one that is not headscope's.
    """
    check_site(folder, overwrite=overwrite, site=site)
    old: Path | None = None
    foreign_files: list[Path] = []
    try:
        with new_folder(folder) as new:
            yield new
            site_files = sorted(
                p.relative_to(new).as_posix() for p in new.rglob("*") if p.is_file()
            )
            text = json.dumps({"files": [*site_files, site.manifest]}, indent=1) + "\n"
            write_file(new / site.manifest, encoded(text))
            destination = resolved(folder)
            if destination.is_dir() and any(destination.iterdir()):
                foreign_files = _others(destination, site)
                _check_ways(destination, new, foreign_files, site)
                destination.rename(new.with_name(f"{new.name}.old"))
                old = new.with_name(f"{new.name}.old")
    except BaseException:
        if old is not None:
            old.rename(resolved(folder))
        raise
    if old is not None:
        _move(foreign_files, old, resolved(folder))


def _site_files(folder: Path, site: Site) -> set[str]:
    """The files that headscope wrote into a folder.

    Raises:
        WriteError: its list of them is damaged.
    """
    path = folder / site.manifest
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {str(name) for name in files} if isinstance(files, list) else set()
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WriteError(
            f"{path} is damaged, so that what is headscope's in {folder} cannot be told from what "
            "is not; remove the folder yourself, or choose another --out"
        ) from error


def _others(destination: Path, site: Site) -> list[Path]:
    """Files and links in such a folder that headscope did not write, as seen from there."""
    site_files, others = _site_files(destination, site), list[Path]()
    for above, folders, names in os.walk(destination):
        links = [name for name in folders if (Path(above) / name).is_symlink()]
        every = [(Path(above) / name).relative_to(destination) for name in (*names, *links)]
        others += [path for path in every if path.as_posix() not in site_files]
    return others


def _check_ways(destination: Path, new: Path, foreign_files: Sequence[Path], site: Site) -> None:
    for path in foreign_files:
        parts = [path, *path.parents[:-1]]
        if os.path.lexists(new / path) or any((new / part).is_file() for part in parts):
            raise WriteError(
                f"{destination / path} is in the way, and no {site.word} wrote it; move it "
                "elsewhere"
            )


def _move(foreign_files: Sequence[Path], old: Path, destination: Path) -> None:
    for path in foreign_files:
        (destination / path).parent.mkdir(parents=True, exist_ok=True)
        (old / path).rename(destination / path)
    shutil.rmtree(old, ignore_errors=True)
