"""Packing runs as atlases: the same run, the same bytes, and nothing of whose machine it was."""

from __future__ import annotations

import io
import lzma
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from headscope.corpus.shipped import named_corpora
from headscope.errors import RunError
from headscope.measure.example import Example
from headscope.runs.atlas import MEMBERS, SUFFIX
from headscope.runs.recorded_paths import PLACES, lies
from headscope.runs.store import save
from headscope.runs.write import write_file
from headscope.statistics.result import Result

STEPS_OF_ATTENTION = 200
"""Equal steps from 0 to 1 in which an atlas keeps the attention of examples: twice as fine as what
a report draws, and a third of the bytes of half precision."""
_PERSONAL = ("time", "seconds")
"""Provenance that another machine would have otherwise."""
_XZ = lzma.PRESET_EXTREME | 9


def pack(run: Result, path: Path, *, overwrite: bool = False) -> Path:
    """Write a run as an atlas.

    Heads, evidence, mean patterns, examples and what studies have put beside them are in it; the
    sums and the report are not, nor when and how fast the run was made.

    Args:
        run: the run.
        path: the file, whose name ends in `.tar.xz`.
        overwrite: replace a file that is there.

    Raises:
        RunError: the name of the file is that of no atlas.
        WriteError: it is there already (and `overwrite` is off), or cannot be written.
    """
    if not path.name.endswith(SUFFIX):
        raise RunError(f"{path}: the name of an atlas ends in {SUFFIX}")
    with tempfile.TemporaryDirectory(prefix="headscope-pack-") as work:
        folder = Path(work) / "run"
        save(_smaller(run), folder, report=lambda: "")
        return write_file(path, _packed(folder), overwrite=overwrite)


def _smaller(run: Result) -> Result:
    """The run as an atlas keeps it."""
    examples = [_coarse(example) for example in run.examples]
    info = _impersonal(run.info)
    note = (
        "an atlas: a run without its sums; attention of examples is rounded to "
        f"{1 / STEPS_OF_ATTENTION:g}, and any other text needs the model, which show and serve load"
    )
    notes = [*dict.fromkeys([*info.get("notes", ()), note])]
    return replace(run, examples=examples, info=info | {"notes": notes}, tally=None, twin=None)


def _coarse(example: Example) -> Example:
    steps = np.round(example.pattern.astype(np.float64) * STEPS_OF_ATTENTION)
    return replace(example, pattern=(steps / STEPS_OF_ATTENTION).astype(np.float16))


def _impersonal(info: dict[str, Any]) -> dict[str, Any]:
    """The record of a run without times, and without paths of the machine that made it."""
    provenance = {key: v for key, v in info["provenance"].items() if key not in _PERSONAL}
    if PLACES not in info:
        return info | {"provenance": provenance}
    shipped = {lies(path) for path in named_corpora().values()}
    places = {name: None for name in info[PLACES] if name != "corpora"}
    corpora = [path if path in shipped else None for path in info[PLACES].get("corpora", ())]
    return info | {"provenance": provenance, PLACES: {**places, "corpora": corpora}}


def _packed(folder: Path) -> bytes:
    """The files of a run folder as one file, which says nothing of when and by whom."""
    stream = io.BytesIO()
    with (
        lzma.open(stream, "wb", preset=_XZ) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name in MEMBERS:
            if not (folder / name).is_file():
                continue
            content = (folder / name).read_bytes()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()
