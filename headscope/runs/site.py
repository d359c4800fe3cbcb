"""Folders that headscope writes for others to serve, such as a gallery.

All files of a site are made in a temporary folder next to it and then moved to their places. Files
of the user's in the site's folder are kept when the site is written again.
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
from headscope.runs.folder import check_left
from headscope.runs.write import check_writable, write_file, writing


@dataclass(frozen=True)
class Site:
    """A kind of site."""

    word: str
    """Name of the kind in messages."""
    manifest: str
    """File in the folder that lists the files that headscope wrote; all others are the user's."""


GALLERY = Site("gallery", "gallery.json")
HEADVIS = Site("HeadVis export", "headscope.json")


def check_site(folder: Path, *, overwrite: bool, site: Site = GALLERY) -> None:
    """Refuse a folder that holds something that must not be replaced.

    Raises:
        WriteError: it is a file, the working folder, holds other files than such a site's, or a
            site (and `overwrite` is off).
    """
    with writing(folder):
        if os.path.lexists(folder) and not folder.is_dir():
            raise WriteError(f"{folder} is a file; --out names a folder")
        check_left(folder)
        check_writable(folder)
        if not folder.is_dir() or not any(folder.iterdir()):
            return
        if not (folder / site.manifest).is_file():
            raise WriteError(
                f"{folder} contains other files and no {site.word}; choose an empty or new folder"
            )
        if not overwrite:
            raise WriteError(
                f"{folder} holds a {site.word} already; choose another --out, or add --overwrite"
            )
    _site_files(folder, site)


@contextmanager
def new_site(folder: Path, *, overwrite: bool, site: Site = GALLERY) -> Iterator[Path]:
    """A folder to write files into, which take their places when all are written.

    Files of the site that was there go; what somebody else put there, such as `CNAME`, stays.

    Raises:
        WriteError: see `check_site`; or a file has the place of one that is not headscope's.
    """
    check_site(folder, overwrite=overwrite, site=site)
    with writing(folder):
        destination = resolved(folder)
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".headscope-") as name:
            new = Path(name)
            yield new
            files = sorted(p.relative_to(new).as_posix() for p in new.rglob("*") if p.is_file())
            files.append(site.manifest)
            write_file(new / site.manifest, json.dumps({"files": files}, indent=1) + "\n")
            _replace(destination, new, files, site)


def _site_files(folder: Path, site: Site) -> set[str]:
    """The files that headscope wrote into a folder.

    Raises:
        WriteError: the list of them is damaged.
    """
    path = folder / site.manifest
    if not path.is_file():
        return set()
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {name for name in files if resolved(folder / name).is_relative_to(resolved(folder))}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WriteError(
            f"{path} is damaged, so that what is headscope's in {folder} cannot be told from what "
            "is not; remove the folder yourself, or choose another --out"
        ) from error


def _replace(destination: Path, new: Path, files: list[str], site: Site) -> None:
    """Move the files of a new site into its folder, in place of those of an earlier one."""
    earlier = _site_files(destination, site)
    for file in map(Path, files):
        for part in (file, *file.parents[:-1]):
            path = destination / part
            is_folder = path.is_dir() and not path.is_symlink() and part != file
            if os.path.lexists(path) and not is_folder and part.as_posix() not in earlier:
                raise WriteError(
                    f"{path} is in the way, and no {site.word} wrote it; move it elsewhere"
                )
    for file in map(Path, earlier - {*files}):
        (destination / file).unlink(missing_ok=True)
        for above in file.parents[:-1]:
            with suppress(OSError):  # it holds something
                (destination / above).rmdir()
    for file in map(Path, files):
        (destination / file).parent.mkdir(parents=True, exist_ok=True)
        (new / file).replace(destination / file)
