"""Atlases: runs packed into one small file; those that ship with headscope are `atlas:NAME`.

An atlas is a run folder in a smaller packing: a `.tar.xz` of its files, without the sums and the
report. It is unpacked into a temporary folder, which goes when the process ends, and read there.
"""

from __future__ import annotations

import atexit
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headscope.corpus.shipped import data_folder
from headscope.errors import ChoiceError, RunError
from headscope.printing import print_above_bars
from headscope.runs.folder import CHECKED, RUN, SUMS, TALLY, is_run, most_bytes

PREFIX = "atlas:"
"""Before the name of an atlas that ships."""
SUFFIX = ".tar.xz"
MEMBERS = (RUN, *(name for name in CHECKED if name not in (SUMS, TALLY)))
"""Files of a run that an atlas may hold."""
_UNREADABLE = (tarfile.TarError, lzma.LZMAError, EOFError, OSError, ValueError)


@dataclass(frozen=True)
class Atlas:
    """An atlas by the name that stands for it."""

    name: str
    """`atlas:NAME`, or the path of the file."""
    path: Path
    is_implied: bool = False
    """True where the name of a model stands for its atlas, as no run folder is called so."""

    @property
    def page(self) -> Path:
        """The file that its report is written to unless another is named.

        >>> Atlas("atlas:mini", Path("data/atlas/mini.tar.xz")).page.as_posix()
        'mini.html'
        """
        return Path(f"{self.path.name.removesuffix(SUFFIX)}.html")

    def damaged(self, error: Exception) -> RunError:
        """The error for an atlas that cannot be read."""
        reason = str(error).rstrip(".")
        return RunError(f"{self.path}: this atlas is damaged ({reason:.300}); {_AGAIN}")


_AGAIN = "copy the file again, or install headscope anew"


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
    """The atlas that a name or a path stands for; None where it is none.

    A run folder comes first, then `atlas:NAME` and the path of an atlas. Where a run is expected
    the bare name of a model that has an atlas stands for it too.

    Raises:
        ChoiceError: no atlas of that name ships.
    """
    name = str(run)
    if is_run(Path(run)):
        return None
    if name.startswith(PREFIX):
        known = atlas_names()
        if name.removeprefix(PREFIX) not in known:
            raise ChoiceError("atlas", name, [f"{PREFIX}{known_name}" for known_name in known])
        return Atlas(name, _shipped(name.removeprefix(PREFIX)))
    if is_packed(name):
        return Atlas(name, Path(run))
    return Atlas(f"{PREFIX}{name}", _shipped(name), True) if name in atlas_names() else None


def is_packed(run: str | Path) -> bool:
    """True for `atlas:NAME` and for the file of an atlas, which stand for no model.

    >>> is_packed("atlas:mini"), is_packed("mini")
    (True, False)
    """
    name = str(run)
    try:
        return name.startswith(PREFIX) or (name.endswith(SUFFIX) and Path(run).is_file())
    except (OSError, ValueError):  # a name that is too long, or with a NUL in it
        return False


def is_stored(run: str | Path) -> bool:
    """True for a run folder, `atlas:NAME` or the file of an atlas."""
    return is_run(Path(run)) or is_packed(run)


def check_unpacked(run: str | Path) -> None:
    """Refuse an atlas where tables would be put into a run folder.

    Raises:
        RunError: it is one.
    """
    atlas = atlas_of(run)
    if atlas is not None:
        raise RunError(
            f"{atlas.name} is an atlas, into which nothing is written; headscope classify makes a "
            f"run folder, and hs.load({atlas.name!r}).save(…) unpacks this one into a folder"
        )


def unpacked(atlas: Atlas) -> Path:
    """The temporary run folder of an atlas, the same one for the whole process.

    Raises:
        RunError: it is damaged, or there is no room for it.
    """
    if atlas.is_implied:
        name = atlas.name.removeprefix(PREFIX)
        print_above_bars(
            f"headscope: no run folder is called {name}; this is {atlas.name}, which ships"
        )
    try:
        return _unpack(atlas.path, atlas.path.stat().st_mtime_ns)
    except _UNREADABLE as error:
        raise atlas.damaged(error) from error


@cache
def _unpack(path: Path, modified: int) -> Path:
    """Unpack an atlas; `modified` tells another file of the same name."""
    files = dict(_files(path))
    try:
        folder = Path(tempfile.mkdtemp(prefix="headscope-atlas-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)
    except OSError as error:
        raise RunError(
            f"{path} cannot be unpacked into {tempfile.gettempdir()}: "
            f"{error.strerror or error}; TMPDIR may name another folder"
        ) from error
    return folder


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """The files of an atlas by their names in a run folder."""
    with tarfile.open(path, "r:xz") as archive:
        for member in archive:
            if member.name not in MEMBERS or not member.isreg():
                raise ValueError(f"{member.name!r:.100} is no file of an atlas")
            if member.size > most_bytes(member.name):
                raise ValueError(f"{member.name} has {member.size:,} bytes, more than any run's")
            content = archive.extractfile(member)
            yield member.name, b"" if content is None else content.read()


def _shipped(name: str) -> Path:
    return atlas_folder() / f"{name}{SUFFIX}"
