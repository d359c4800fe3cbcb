"""Atlases: runs packed into one small file each; those that ship with headscope are `atlas:NAME`.

An atlas is a `.tar.xz` of the files of a run folder without the sums and the report. It is only
read. `atlas:PLACE/NAME` is one of a folder or a URL; see `headscope.runs.atlas_places`.
"""

from __future__ import annotations

import lzma
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from headscope.corpus.shipped import data_folder
from headscope.errors import RunError, check_choice, first_line
from headscope.paths import ATLAS_PREFIX, exists
from headscope.runs.atlas_places import placed_atlas
from headscope.runs.contents import CHECKED, RECORD, SUMS, run_from_files
from headscope.runs.folder import is_run
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
            print(
                f"headscope: no run folder is called {name}; this is {self.name}, which ships",
                file=sys.stderr,
                flush=True,
            )
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
