"""Atlases: runs packed into one small file each; those that ship with headscope are `atlas:NAME`.

An atlas is a `.tar.xz` of the files of a run folder without the sums and the report. It is only
read. `atlas:PLACE/NAME` is one that other people publish, in a folder or at a URL:
`make atlas MODELS="…"` writes a place, with the atlases and a checksum of each in `atlases.csv`. An
atlas from a URL is kept in the cache, and is fetched again only if the published checksum has
changed.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import sys
import tarfile
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pandas as pd

from headscope.corpus.shipped import data_folder
from headscope.errors import RunError, check_choice, first_line, nearest_name, reported_as
from headscope.models.packaged import cache_root
from headscope.paths import ATLAS_PREFIX, exists
from headscope.runs.contents import CHECKED, RECORD, SUMS, run_from_files
from headscope.runs.folder import is_run
from headscope.runs.write import write_file
from headscope.statistics.result import Result

PREFIX = ATLAS_PREFIX
SUFFIX = ".tar.xz"
MEMBERS = (RECORD, *(name for name in CHECKED if name != SUMS))
"""Files of a run that an atlas may hold."""
MOST_BYTES = 2**30
"""Bytes of all files of an atlas: a small file from elsewhere can unpack to any size."""


@dataclass(frozen=True)
class Atlas:
    """An atlas by the name that stands for it."""

    name: str
    """`atlas:NAME`, `atlas:PLACE/NAME`, or the path of the file."""
    path: Path
    is_implied: bool = False
    """True if the name of a model stands for its atlas, because no run folder is called so."""

    @property
    def page(self) -> Path:
        """The file that its report is written to unless another is named.

        >>> Atlas("atlas:mini", Path("data/atlas/mini.tar.xz")).page.as_posix()
        'mini.html'
        """
        return Path(f"{self.path.name.removesuffix(SUFFIX)}.html")

    def load(self) -> Result:
        """Read the run, without its sums.

        Raises:
            RunError: the file is damaged.
        """
        if self.is_implied:
            name = self.name.removeprefix(PREFIX)
            # classify writes there unless another folder is named
            own_run = Path("runs") / name
            if is_run(own_run):
                note = f"this is {self.name}, which ships; your run is {own_run}"
            else:
                note = f"no run folder is called {name}; this is {self.name}, which ships"
            print(f"headscope: {note}", file=sys.stderr, flush=True)
        # a file from elsewhere may name any path, hold links, or unpack to any size
        try:
            files = {}
            with tarfile.open(self.path, "r:xz") as archive:
                bytes_left = MOST_BYTES
                for member in archive:
                    bytes_left -= member.size
                    if member.name not in MEMBERS or not member.isreg() or bytes_left < 0:
                        raise RunError(
                            f"{member.name!r:.100} is not a file of an atlas, or too large"
                        )
                    content = archive.extractfile(member)
                    files[member.name] = b"" if content is None else content.read()
            return run_from_files(files.__getitem__, self.path.parent)
        except (
            tarfile.TarError,
            lzma.LZMAError,
            EOFError,
            OSError,
            LookupError,
            RunError,
        ) as error:
            reason = first_line(error).rstrip(".")
            raise RunError(
                f"{self.path}: this atlas is damaged ({reason:.300}); copy the file again, or "
                "reinstall headscope"
            ) from error


def atlas_folder() -> Path:
    """The folder of the atlases that ship."""
    return data_folder() / "atlas"


def atlas_names() -> list[str]:
    """Names of the atlases that ship, without `atlas:`.

    >>> atlas_names()
    ['mini', 'minilm', 'smollm2']
    """
    return sorted(path.name.removesuffix(SUFFIX) for path in atlas_folder().glob(f"*{SUFFIX}"))


def atlas_of(run: str | Path) -> Atlas | None:
    """The atlas that a name or a path stands for; None for any other name.

    A run folder comes first, then `atlas:NAME`, `atlas:PLACE/NAME` and the path of an atlas. If a
    run is expected, the bare name of a model that has an atlas stands for it too.

    Raises:
        ChoiceError: no atlas of that name ships.
        RunError: the place has no such atlas, or the atlas is not the one that is stated there.
    """
    name = str(run)
    if is_run(Path(run)):
        return None
    known = atlas_names()
    # a path after the prefix is an atlas of the user's, any other name one that ships
    if name.startswith(PREFIX) and "/" in name:
        location, _, stem = name.removeprefix(PREFIX).rpartition("/")
        return Atlas(name, placed_atlas(location or "/", f"{stem.removesuffix(SUFFIX)}{SUFFIX}"))
    if name.startswith(PREFIX):
        check_choice("atlas", name, [f"{PREFIX}{known_name}" for known_name in known])
        return Atlas(name, _shipped(name.removeprefix(PREFIX)))
    if is_packed(name):
        return Atlas(name, Path(run))
    return Atlas(f"{PREFIX}{name}", _shipped(name), True) if name in known else None


def is_packed(run: str | Path) -> bool:
    """True for `atlas:NAME` and for the file of an atlas, which stand for no model.

    >>> is_packed("atlas:mini"), is_packed("mini")
    (True, False)
    """
    name = str(run)
    return name.startswith(PREFIX) or (name.endswith(SUFFIX) and exists(Path(run)))


def is_stored(run: str | Path) -> bool:
    """True for a run folder, `atlas:NAME` or the file of an atlas."""
    return is_run(Path(run)) or is_packed(run)


def _shipped(name: str) -> Path:
    return atlas_folder() / f"{name}{SUFFIX}"


TABLE = "atlases.csv"
"""File that names the atlases of a location, with the checksum of each."""
MOST_PACKED_BYTES = 2**28
"""Bytes that are read from a URL at most."""
_SECONDS = 60


def placed_atlas(location: str, file: str) -> Path:
    """The atlas of this file name at a location, on this disk, checked by its stated checksum.

    Args:
        location: a folder, or a URL that begins with https:// or http://.
        file: the name of the atlas with its suffix.

    Raises:
        RunError: the location has no such atlas, cannot be read, or the checksums differ.
    """
    # a URL that became a path on its way has lost one of its slashes
    location = re.sub(r"^(https?):/+", r"\1://", location)
    is_url = location.startswith(("http://", "https://"))
    # the checksum that the table of the location states
    table = _content(location, TABLE, is_url)
    with reported_as(RunError, f"{location}/{TABLE} does not list atlases", ValueError, KeyError):
        checksums = pd.read_csv(io.BytesIO(table), dtype=str).set_index("file")["sha256"]
    if file not in checksums.index:
        raise RunError(
            f"{location} has no atlas {file}{nearest_name(file, list(checksums.index))}; "
            f"{TABLE} there names {len(checksums)}"
        )
    stated = str(checksums.loc[file])
    if not is_url:
        path = Path(location).expanduser() / file
        _check(_content(location, file, is_url), stated, path)
        return path

    # the name of the cached copy is its checksum, so another version never stands for this one
    path = cache_root() / "atlases" / stated / file
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == stated:
        return path
    content = _content(location, file, is_url)
    _check(content, stated, f"{location}/{file}")
    return write_file(path, content, overwrite=True)


def _check(content: bytes, stated: str, path: Any) -> None:
    actual = hashlib.sha256(content).hexdigest()
    if actual != stated:
        raise RunError(
            f"{path} has the checksum {actual[:12]}…, and {TABLE} in the same folder states "
            f"{stated[:12]}…; copy the file again"
        )


def _content(location: str, file: str, is_url: bool) -> bytes:
    """The bytes of a file of a location."""
    if not is_url:
        path = Path(location).expanduser() / file
        try:
            return path.read_bytes()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "no path"
            raise RunError(
                f"{path} cannot be read ({reason}); a location is a folder or URL that has {TABLE}"
            ) from error
    url = f"{location}/{file}"
    with reported_as(RunError, f"{url} cannot be read", OSError, ValueError, HTTPException):
        # a hub answers programs that name themselves
        request = Request(url, headers={"User-Agent": "headscope"})
        with urlopen(request, timeout=_SECONDS) as answer:
            # one byte more than is allowed shows that there are more
            content: bytes = answer.read(MOST_PACKED_BYTES + 1)
    if len(content) > MOST_PACKED_BYTES:
        raise RunError(f"{url} is larger than {MOST_PACKED_BYTES / 2**20:.0f} MiB")
    return content
