"""The files of a run folder: their names, that they lie inside it, and their checksums."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError

from headscope.corpus.read import file_sha256
from headscope.errors import RunError
from headscope.paths import resolved
from headscope.runs.write import LEFTOVERS

UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    SafetensorError,
)
"""What reading a file of a run can raise when it was altered: safetensors has no one family."""
RUN, EVIDENCE, HEADS = "run.json", "evidence.csv", "heads.csv"
SUMS, TALLY = "sums.npz", "tally.safetensors"
REPORT = "report.html"
CAUSES = "causal.csv"
RULES = "rules.csv"
EFFECTS = "effects.csv"
PATTERNS, INDEX = "patterns/examples.safetensors", "patterns/examples.json"
MEANS = "patterns/mean.safetensors"
CHECKED = (EVIDENCE, HEADS, SUMS, TALLY, PATTERNS, INDEX, CAUSES, RULES, EFFECTS, MEANS)
"""What is read back, and therefore has its sha256 in `run.json`. The report is only an output."""
RUN_FILES = (RUN, *CHECKED, REPORT)
"""All that headscope writes into a run folder; whatever else lies there is the user's."""

# the largest file of its kind by far: runs of 10,000 heads have a tenth of it. What is larger is
# no run, and would fill memory when it is parsed, or take minutes to hash
_MOST_BYTES = {
    RUN: 16 * 2**20,
    EVIDENCE: 256 * 2**20,
    HEADS: 64 * 2**20,
    INDEX: 64 * 2**20,
    PATTERNS: 4 * 2**30,
    SUMS: 4 * 2**30,
    TALLY: 16 * 2**30,
    CAUSES: 64 * 2**20,
    RULES: 64 * 2**20,
    EFFECTS: 256 * 2**20,
    MEANS: 256 * 2**20,
}


def is_run(folder: Path) -> bool:
    """True if there is a run; False for what can be no folder at all."""
    try:
        return (folder / RUN).is_file()
    except (OSError, ValueError):  # a name that is too long, or with a NUL in it
        return False


def check_foreign(path: Path) -> None:
    """Refuse to write another table or picture over a file that belongs to a run.

    Raises:
        RunError: the file is one of a run's own.
    """
    if path.name in RUN_FILES and is_run(path.parent):
        raise RunError(f"{path} is a file of the run in {path.parent}; choose another")


def inside(folder: Path, name: str) -> Path:
    """The path of a run's file, or of one to write there.

    Raises:
        RunError: a link leads out of the folder.
    """
    path = folder / name
    try:
        real = resolved(path)
        home = resolved(folder)
    except OSError as error:  # a loop of links
        raise RunError(f"{path}: cannot be read: {error}") from error
    if not real.is_relative_to(home):
        raise RunError(f"{path} leads out of the run folder, to {real}; put the file itself there")
    return path


def readable_path(folder: Path, name: str) -> Path:
    """The path of a run's file that is about to be read.

    Raises:
        RunError: it is missing, no regular file, absurdly large, or lies elsewhere.
    """
    path = inside(folder, name)
    if not path.is_file():
        there = "no regular file" if os.path.lexists(path) else "missing"
        raise RunError(f"{path}: this file of the run is {there}; {WRITE_AGAIN}")
    if (size := path.stat().st_size) > most_bytes(name):
        raise RunError(
            f"{path}: {size:,} bytes, and no run has more than {most_bytes(name):,} there"
        )
    return path


def most_bytes(name: str) -> int:
    """Bytes that a file of a run may have, by its name in the folder."""
    return _MOST_BYTES[name]


def remove_own(folder: Path) -> None:
    """Remove what headscope writes into a run folder, and the folder if nothing else is in it."""
    patterns = (folder / PATTERNS).parent
    leftovers = [path for parent in (folder, patterns) for path in parent.glob(LEFTOVERS)]
    for path in [*(folder / name for name in RUN_FILES), *leftovers]:
        path.unlink(missing_ok=True)
    for path in patterns, folder:
        with suppress(OSError):  # it holds something of the user's, or was never there
            path.rmdir()


def move_others(folder: Path, to: Path) -> None:
    """Move all files that are not headscope's own from one run folder into another.

    What the other has under the same name is kept there, and the file stays where it is.
    """
    run_files = {folder / name for name in RUN_FILES}
    patterns = (folder / PATTERNS).parent
    for path in [*folder.iterdir(), *(patterns.iterdir() if patterns.is_dir() else ())]:
        target = to / path.relative_to(folder)
        if path in run_files or path == patterns or os.path.lexists(target):
            continue
        target.parent.mkdir(exist_ok=True)
        path.rename(target)


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

    Args:
        folder: the run folder.
        stated: the sha256 of each file.

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
        elif _sha256(readable_path(folder, name)) != stated[name]:
            raise altered(path)


def altered(path: Path) -> RunError:
    """The error that names a file whose checksum is another than `run.json` states."""
    return RunError(
        f"{path}: this file is not the one that was written (its sha256 is not that in "
        f"{RUN}): edited, cut short or from another run; {WRITE_AGAIN}"
    )


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from error
