"""The files of a run folder: their names, that they lie inside it, and their checksums."""

from __future__ import annotations

import os
from pathlib import Path

from headscope.corpus.read import file_sha256
from headscope.errors import RunError

RUN, EVIDENCE, HEADS, TALLY = "run.json", "evidence.csv", "heads.csv", "tally.safetensors"
REPORT = "report.html"
PATTERNS, INDEX = "patterns/examples.safetensors", "patterns/examples.json"
CHECKED = (EVIDENCE, HEADS, TALLY, PATTERNS, INDEX)
"""What is read back, and therefore has its sha256 in `run.json`. The report is only an output."""

# the largest file of its kind by far: runs of 10,000 heads have a tenth of it. What is larger is
# no run, and would fill memory when it is parsed, or take minutes to hash
_MOST_BYTES = {
    RUN: 16 * 2**20, EVIDENCE: 256 * 2**20, HEADS: 64 * 2**20, INDEX: 64 * 2**20,
    PATTERNS: 4 * 2**30, TALLY: 16 * 2**30,
}  # fmt: skip


def is_run(folder: Path) -> bool:
    """Whether there is a run; False for what can be no folder at all."""
    try:
        return (folder / RUN).is_file()
    except (OSError, ValueError):  # a name that is too long, or with a NUL in it
        return False


def inside(folder: Path, name: str) -> Path:
    """The path of a run's file, or of one to write there.

    Raises:
        RunError: a link leads out of the folder.
    """
    path = folder / name
    try:
        real = path.resolve()
        home = folder.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links
        raise RunError(f"{path}: cannot be read: {error}") from error
    if not real.is_relative_to(home):
        raise RunError(f"{path} leads out of the run folder, to {real}; put the file itself there")
    return path


def readable(folder: Path, name: str) -> Path:
    """The path of a run's file that is about to be read.

    Raises:
        RunError: it is missing, no regular file, absurdly large, or lies elsewhere.
    """
    path = inside(folder, name)
    if not path.is_file():
        there = "no regular file" if os.path.lexists(path) else "missing"
        raise RunError(f"{path}: this file of the run is {there}; {WRITE_AGAIN}")
    if (size := path.stat().st_size) > _MOST_BYTES[name]:
        raise RunError(
            f"{path}: {size:,} bytes, and no run has more than {_MOST_BYTES[name]:,} there"
        )
    return path


def encoded(text: str) -> bytes:
    """Text as UTF-8. Half of a surrogate pair, which file names can hold, stays an escape that
    JSON reads back.
    """
    return text.encode("utf-8", "backslashreplace")


WRITE_AGAIN = "copy the folder again, or write it anew with headscope classify --overwrite"


def checksums(folder: Path) -> dict[str, str]:
    """The sha256 of each file that will be read back, by its name in the folder."""
    return {name: file_sha256(folder / name) for name in CHECKED if (folder / name).is_file()}


def check_files(folder: Path, stated: dict[str, str]) -> None:
    """Compare the files with the checksums that `run.json` states.

    Raises:
        RunError: the first file that is missing, altered, cut short, or of another run.
    """
    for name in stated:
        if name not in CHECKED:
            raise RunError(
                f"{folder / RUN}: states the checksum of {name!r:.100}, which is no file of a run; "
                f"those are {', '.join(CHECKED)}"
            )
    for name in CHECKED:
        path = folder / name
        if name not in stated:
            if os.path.lexists(path):
                raise RunError(f"{path}: not written with this run, whose {RUN} does not state it")
        elif file_sha256(readable(folder, name)) != stated[name]:
            raise RunError(
                f"{path}: this file is not the one that was written (its sha256 is not that in "
                f"{RUN}): edited, cut short or from another run; {WRITE_AGAIN}"
            )
