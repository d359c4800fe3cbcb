"""Atlases that other people publish: `atlas:PLACE/NAME`, in a folder or at a URL.

`make atlas MODELS="…"` writes a place: the atlases, and `atlases.csv` with a checksum for each.
An atlas from a URL is kept in the cache, and is fetched again only if the checksum that is
published there has changed.
"""

from __future__ import annotations

import hashlib
import io
import re
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pandas as pd

from headscope.errors import RunError, first_line, nearest_name
from headscope.models.packaged import cache_root
from headscope.runs.write import write_file

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
    stated = _stated_checksum(_content(location, TABLE, is_url), location, file)
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


def _stated_checksum(table: bytes, location: str, file: str) -> str:
    """The SHA-256 that the table of a location states for an atlas."""
    try:
        checksums = pd.read_csv(io.BytesIO(table), dtype=str).set_index("file")["sha256"]
    except (ValueError, KeyError) as error:
        raise RunError(f"{location}/{TABLE} does not list atlases: {first_line(error)}") from error
    if file not in checksums.index:
        raise RunError(
            f"{location} has no atlas {file}{nearest_name(file, list(checksums.index))}; "
            f"{TABLE} there names {len(checksums)}"
        )
    return str(checksums.loc[file])


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
    try:
        # a hub answers programs that name themselves
        request = Request(url, headers={"User-Agent": "headscope"})
        with urlopen(request, timeout=_SECONDS) as answer:
            content: bytes = answer.read(MOST_PACKED_BYTES + 1)
    except (OSError, ValueError, HTTPException) as error:
        raise RunError(f"{url} cannot be read: {first_line(error)}") from error
    if len(content) > MOST_PACKED_BYTES:
        raise RunError(f"{url} is larger than {MOST_PACKED_BYTES / 2**20:.0f} MiB")
    return content
