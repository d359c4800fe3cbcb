"""A folder that headscope wrote for others to serve, such as a gallery: made whole, and written
again with what is the user's kept.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    """A folder to write files into, which take their places when all are written.

    Files of the site that was there go; what somebody else put there, such as `CNAME`, stays.

    Raises:
        WriteError: see `check_site`; or a file has the place of one that is not headscope's.
    """
    check_site(folder, overwrite=overwrite, site=site)
    if not folder.is_dir() or not any(folder.iterdir()):
        with new_folder(folder) as new:
            yield new
            _write_manifest(new, site)
        return
    destination = resolved(folder)
    try:
        with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".headscope-") as name:
            yield Path(name)
            files = _write_manifest(Path(name), site)
            _replace(destination, Path(name), files, site)
    except OSError as error:
        raise unwritable_file(folder, error) from error


def _write_manifest(new: Path, site: Site) -> list[str]:
    """The files of a new site, with the list of them that is written."""
    files = sorted(p.relative_to(new).as_posix() for p in new.rglob("*") if p.is_file())
    files.append(site.manifest)
    text = json.dumps({"files": files}, indent=1) + "\n"
    write_file(new / site.manifest, encoded(text))
    return files


def _site_files(folder: Path, site: Site) -> set[str]:
    """The files that headscope wrote into a folder.

    Raises:
        WriteError: its list of them is damaged.
    """
    path = folder / site.manifest
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {name for name in files if resolved(folder / name).is_relative_to(resolved(folder))}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WriteError(
            f"{path} is damaged, so that what is headscope's in {folder} cannot be told from what "
            "is not; remove the folder yourself, or choose another --out"
        ) from error


def _replace(destination: Path, new: Path, files: list[str], site: Site) -> None:
    """Move the files of a new site into the folder of the one that was there."""
    site_files = _site_files(destination, site)
    for file in map(Path, files):
        for part in (file, *file.parents[:-1]):
            path = destination / part
            is_folder = path.is_dir() and not path.is_symlink() and part != file
            if os.path.lexists(path) and not is_folder and part.as_posix() not in site_files:
                raise WriteError(
                    f"{path} is in the way, and no {site.word} wrote it; move it elsewhere"
                )
    for file in map(Path, site_files - {*files}):
        (destination / file).unlink(missing_ok=True)
        for above in file.parents[:-1]:
            with suppress(OSError):  # it holds something
                (destination / above).rmdir()
    for file in map(Path, files):
        (destination / file).parent.mkdir(parents=True, exist_ok=True)
        (new / file).replace(destination / file)
