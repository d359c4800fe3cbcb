"""Folders of files for others to serve, such as a gallery."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headscope.errors import WriteError
from headscope.paths import resolved
from headscope.runs.write import check_writable, writing


def check_site(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that cannot be written, or holds files that must not be replaced.

    Raises:
        WriteError: it is a file, cannot be written, or is not empty (and `overwrite` is off).
    """
    with writing(folder):
        check_writable(folder)
        if folder.exists() and any(folder.iterdir()) and not overwrite:
            raise WriteError(
                f"{folder} holds files already; choose another --out, or add --overwrite"
            )


@contextmanager
def new_site(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A folder to write files into, which take their places when all are written.

    With `overwrite`, they replace files of the same names; all others stay.

    Raises:
        WriteError: see `check_site`.
    """
    check_site(folder, overwrite=overwrite)
    with writing(folder):
        destination = resolved(folder)
        destination.parent.mkdir(parents=True, exist_ok=True)
        # on the same disk, where a file is moved and not copied
        with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".headscope-") as name:
            yield Path(name)
            for file in [path for path in Path(name).rglob("*") if path.is_file()]:
                target = destination / file.relative_to(name)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
