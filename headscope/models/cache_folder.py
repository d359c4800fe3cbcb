"""The cache folder, and folders that take their place in it when they are whole."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

UNFINISHED_AFTER = 3600.0
"""Seconds after which what is half written is nobody's: no model is written for so long."""
_NEW = ".new-"


def cache_root() -> Path | None:
    """`HEADSCOPE_CACHE`, or `~/.cache/headscope`.

    None where that variable is empty: nothing is kept then.
    """
    stated_folder = os.environ.get("HEADSCOPE_CACHE")
    if stated_folder == "":
        return None
    return Path(stated_folder or Path.home() / ".cache" / "headscope").expanduser()


@contextmanager
def unfinished_folder(parent: Path) -> Iterator[Path]:
    """A new folder to write in, beside what it will become; it is gone in the end.

    What processes that were killed left behind goes first.
    """
    for unfinished in parent.glob(f"{_NEW}*"):
        if time.time() - unfinished.stat().st_mtime > UNFINISHED_AFTER:
            shutil.rmtree(unfinished, ignore_errors=True)
    folder = Path(mkdtemp(prefix=_NEW, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
