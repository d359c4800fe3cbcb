"""Atlases: runs packed into one small file each; those that ship with headscope are `atlas:NAME`.

An atlas is a `.tar.xz` of the files of a run folder without the sums and the report. It states
nothing of the machine that made it, and the same run gives the same bytes. It is only read.
"""

from __future__ import annotations

import io
import lzma
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headscope.corpus.shipped import data_folder, named_corpora
from headscope.errors import ChoiceError, RunError
from headscope.paths import exists
from headscope.printing import print_above_bars
from headscope.runs.contents import CHECKED, RECORD, SUMS, run_files, run_from_files
from headscope.runs.folder import is_run
from headscope.runs.recorded_paths import PLACES, lies
from headscope.runs.write import write_file
from headscope.statistics.result import Result

PREFIX = "atlas:"
"""Start of the name of an atlas that ships."""
SUFFIX = ".tar.xz"
MEMBERS = (RECORD, *(name for name in CHECKED if name != SUMS))
"""Files of a run that an atlas may hold."""
MOST_BYTES = 2**30
"""Bytes of all files of an atlas: a small file from elsewhere can unpack to any size."""
STEPS_OF_ATTENTION = 200
"""Equal steps from 0 to 1 in which an atlas keeps the attention of examples: twice as fine as what
a report draws, and a third of the bytes of half precision."""
_PERSONAL = ("time", "seconds")
"""Provenance that another machine would have otherwise."""


@dataclass(frozen=True)
class Atlas:
    """An atlas by the name that stands for it."""

    name: str
    """`atlas:NAME`, or the path of the file."""
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
            print_above_bars(
                f"headscope: no run folder is called {name}; this is {self.name}, which ships"
            )
        try:
            return run_from_files(_files(self.path).__getitem__, self.path.parent)
        except (
            tarfile.TarError,
            lzma.LZMAError,
            EOFError,
            OSError,
            LookupError,
            RunError,
        ) as error:
            raise RunError(
                f"{self.path}: this atlas is damaged ({str(error).rstrip('.'):.300}); copy the "
                "file again, or reinstall headscope"
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

    A run folder comes first, then `atlas:NAME` and the path of an atlas. If a run is expected, the
    bare name of a model that has an atlas stands for it too.

    Raises:
        ChoiceError: no atlas of that name ships.
    """
    name = str(run)
    if is_run(Path(run)):
        return None
    known = atlas_names()
    if name.startswith(PREFIX):
        if name.removeprefix(PREFIX) not in known:
            raise ChoiceError("atlas", name, [f"{PREFIX}{known_name}" for known_name in known])
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


def pack(run: Result, path: Path, *, overwrite: bool = False) -> Path:
    """Write a run as an atlas.

    Heads, evidence, mean patterns, examples and the tables of studies are in it; the sums and the
    report are not, nor when and how fast the run was made.

    Args:
        run: the run.
        path: the file, whose name ends in `.tar.xz`.
        overwrite: replace a file that is there.

    Raises:
        WriteError: it is there already (and `overwrite` is off), or cannot be written.
    """
    files = run_files(_smaller(run), path.parent, report="")
    stream = io.BytesIO()
    with (
        lzma.open(stream, "wb", preset=lzma.PRESET_EXTREME | 9) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in MEMBERS:
            if name in files:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(files[name]), 0o644
                archive.addfile(member, io.BytesIO(files[name]))
    return write_file(path, stream.getvalue(), overwrite=overwrite)


def _files(path: Path) -> dict[str, bytes]:
    """The files of an atlas by their names in a run folder."""
    files = {}
    with tarfile.open(path, "r:xz") as archive:
        bytes_left = MOST_BYTES
        for member in archive:
            bytes_left -= member.size
            if member.name not in MEMBERS or not member.isreg() or bytes_left < 0:
                raise RunError(f"{member.name!r:.100} is not a file of an atlas, or too large")
            content = archive.extractfile(member)
            files[member.name] = b"" if content is None else content.read()
    return files


def _shipped(name: str) -> Path:
    return atlas_folder() / f"{name}{SUFFIX}"


def _smaller(run: Result) -> Result:
    """The run as an atlas keeps it."""
    examples = []
    for example in run.examples:
        steps = np.round(example.pattern.astype(np.float64) * STEPS_OF_ATTENTION)
        coarse = (steps / STEPS_OF_ATTENTION).astype(np.float16)
        examples.append(replace(example, pattern=coarse))
    info = _impersonal(run.info)
    note = (
        "an atlas: a run without its sums; attention of examples is rounded to "
        f"{1 / STEPS_OF_ATTENTION:g}, and any other text needs the model, which show and serve load"
    )
    notes = [*dict.fromkeys([*info.get("notes", ()), note])]
    return replace(run, examples=examples, info=info | {"notes": notes}, tally=None)


def _impersonal(info: dict[str, Any]) -> dict[str, Any]:
    """The record of a run without times, and without paths of the machine that made it."""
    provenance = {key: v for key, v in info["provenance"].items() if key not in _PERSONAL}
    if PLACES not in info:
        return info | {"provenance": provenance}
    shipped = {lies(path) for path in named_corpora().values()}
    places = {name: None for name in info[PLACES] if name != "corpora"}
    corpora = [path if path in shipped else None for path in info[PLACES].get("corpora", ())]
    return info | {"provenance": provenance, PLACES: {**places, "corpora": corpora}}
