"""File systems of their own, where they can be mounted."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def disk(folder: Path, options: str) -> Iterator[Path]:
    """A small file system in memory, mounted at a folder."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if (
        os.name != "posix"
        or shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("nothing can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """A file that takes all that is free on the disk of a folder."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler
