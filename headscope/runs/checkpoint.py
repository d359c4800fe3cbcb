"""The checkpoint of an unfinished run: its sums and its place, written about every minute.

After a kill the same command resumes from it, and ends with the same bytes, because sums add
exactly. If the disk is full, the checkpoint goes to the user's cache, where the same command finds
it. It keeps `headscope.measure.sums.KeptSums`. The resumed run does all else again:

- load the model, cut the texts into windows (with `--generate` after the model has written the rest
  of each), ask it the questions of haystacks, and fit the baselines;
- read the beginning of the text in both precisions, if the run chooses the precision;
- deal all windows into batches. The model reads those batches that are not in the sums, so at most
  what it read since the last checkpoint; see `headscope.measure.reading.read`;
- what follows on `read`: the loss of the model, and windows that are read again for surrogates and
  examples (`headscope.measure.second_reading`). For examples these are more windows than before,
  because patterns of the sample are not kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from headscope.corpus.read import file_sha256
from headscope.errors import RunError, WriteError, first_line, is_out_of_memory
from headscope.measure.sums import Sums
from headscope.models.packaged import cache_root
from headscope.relations.relation import Threshold
from headscope.runs.folder import RunFolder
from headscope.runs.sums_file import from_npz, pack_sums, to_npz, unpack_sums
from headscope.runs.write import write_file
from headscope.statistics.result import Result
from headscope.stimuli.natural_text import TextWindows

EVERY = 60.0
"""Seconds between two writings."""
EVERY_AT_END = 20.0
"""Seconds since the last writing from which on the sums are written when reading ends. A writing
takes up to 2 s."""
SUMS_VERSION = 2
"""Version of what the sums mean; a run does not resume from sums of another version. Since version
2 the hits of hard and easy queries are preferences."""
_HEADER = "facts"
"""Name of the array that holds everything but the sums, as JSON."""


class RunCheckpoint:
    """Keeps the sums of an unfinished run next to its folder.

    Args:
        folder: the run folder; nothing is kept or written when None.
        overwrite: whether a run that is there already is replaced.
    """

    def __init__(self, folder: RunFolder | None, *, overwrite: bool = False) -> None:
        self.folder, self.overwrite = folder, overwrite
        self._last = time.monotonic()
        self._write_sums_to: Callable[[Path], None] = lambda path: None
        """Writes the sums of the run that `begin` has named to a file."""

    def locked(self) -> AbstractContextManager[None]:
        """Lock the run folder; see `RunFolder.locked`."""
        return nullcontext() if self.folder is None else self.folder.locked()

    def check_free(self) -> None:
        """Refuse a folder that a run may not be written to; see `RunFolder.check_free`."""
        if self.folder is not None:
            self.folder.check_free(overwrite=self.overwrite)

    def begin(
        self,
        run: dict[str, Any],
        text: TextWindows,
        sums: Sums,
        *,
        on_message: Callable[[str], None],
    ) -> None:
        """Take over the sums that an earlier process of this run kept, if it kept any.

        Args:
            run: identity of the run: another one must not go on from its sums; see `run_identity`.
            text: the run's text.
            sums: empty sums, which get those of the earlier process; `keep` writes them.
            on_message: called with one line if there are sums.

        Raises:
            RunError: the sums are not usable, or a run is in the folder.
        """
        if self.folder is None:
            return
        # the newest of two places counts
        self._write_sums_to = partial(_write_sums, run=run, text=text, sums=sums)
        checkpoints = [path for path in _places(self.folder) if path.is_file()]
        # a checkpoint of another run is refused, or is removed when the run may be replaced
        if checkpoints:
            newest = max(checkpoints, key=lambda path: path.stat().st_mtime)
            try:
                on_message(_load(newest, run, text, sums))
            except RunError as error:
                if not self.overwrite:
                    raise
                for path in checkpoints:
                    path.unlink(missing_ok=True)
                on_message(f"starts again, because {str(error).partition('; ')[0]}")
        self.check_free()

    def keep(self, *, at_end: bool = False) -> None:
        """Write the checkpoint when it is time for it; `at_end` after the last batch.

        Raises:
            RunError: it cannot be written; the message says where the sums are, and how to go on.
        """
        every = EVERY_AT_END if at_end else EVERY
        if self.folder is None or time.monotonic() - self._last < every:
            return
        try:
            self._write_sums_to(self.folder.checkpoint)
        except WriteError as error:
            raise self._stopped(self.folder, error) from error
        # what was kept elsewhere while the disk was full is older now
        for path in _places(self.folder)[1:]:
            path.unlink(missing_ok=True)
        self._last = time.monotonic()

    def _stopped(self, folder: RunFolder, error: WriteError) -> RunError:
        """The error of a run that cannot be written; its sums are kept where there is room."""
        where = ""
        # the checkpoint that was there stays whole until a new one is
        for path in _places(folder):
            with suppress(WriteError):
                self._write_sums_to(path)
                where = f"the sums are kept in {path.parent}"
                break
        # the one before may still be there
        if not where and folder.checkpoint.is_file():
            where = f"the sums of the last checkpoint are kept in {folder.work}"
        if not where:
            return RunError(f"{error}; the sums are lost; free space there and start again")
        return RunError(
            f"{error}; {where}; free space there and repeat the command, which resumes from them"
        )

    def finish(self, run: Result, *, report: Callable[[], str]) -> None:
        """Write the run folder and remove the checkpoint; see `RunFolder.save`.

        Raises:
            RunError: it cannot be written; the message says where the sums are, and how to go on.
        """
        if self.folder is None:
            return
        try:
            self.folder.save(run, report=report, overwrite=self.overwrite)
        except WriteError as error:
            raise self._stopped(self.folder, error) from error
        for path in _places(self.folder):
            path.unlink(missing_ok=True)


def _places(folder: RunFolder) -> list[Path]:
    """Files for a run's sums: next to its folder, and for a full disk in the cache of this user."""
    places = [folder.checkpoint]
    name = sha256(str(folder.checkpoint).encode("utf-8", "backslashreplace")).hexdigest()[:32]
    with suppress(RuntimeError):  # this user has no home, so there is no other place
        places.append(cache_root() / "unfinished" / f"{name}.npz")
    return places


def _write_sums(path: Path, run: dict[str, Any], text: TextWindows, sums: Sums) -> None:
    header = {
        "run": run,
        "names": list(text.paths),
        "files": text.files,
        "sums": sums.kept_columns(),
    }
    arrays = pack_sums(sums.tally)
    arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    write_file(path, to_npz(arrays), overwrite=True)


def _load(path: Path, run: dict[str, Any], text: TextWindows, sums: Sums) -> str:
    """Take over the sums of a checkpoint; one line that says how much is done.

    Raises:
        RunError: the checkpoint is damaged, or of another run; the message says which.
    """
    try:
        # as large as in memory, and less than a megabyte beside
        arrays = from_npz(path.read_bytes(), 2 * sums.tally.size)
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except Exception as error:  # a file of another kind can make a library raise anything
        if is_out_of_memory(error):  # the sums are whole, and must not be removed
            raise RunError(f"{path} does not fit into memory; free some and repeat") from error
        raise RunError(
            f"{path}: this is not what a run wrote (edited, cut short, or from elsewhere): "
            f"{first_line(error):.200}; remove it or add --overwrite to start again"
        ) from error
    unlike = next(_differences(header, run, text), None)
    if unlike is not None:
        raise RunError(
            f"{path} is of another run: {unlike}; repeat the command of the interrupted run "
            "to resume it, add --overwrite to start again, or choose another --out"
        )
    # the arrays lack empty blocks, which the empty tally of this run has
    empty = sums.tally
    tally = unpack_sums(arrays, empty.relations, (empty.numbers, empty.heads))
    sums.take_over(tally, header["sums"])
    return (
        f"resumes the interrupted run: {sums.tokens:,} tokens in {sums.batches:,} batches were read"
    )


def run_identity(
    record: dict[str, Any], thresholds: dict[str, Threshold], versions: dict[str, str]
) -> dict[str, Any]:
    """Identity of a run: all on which its sums depend, but for the corpora's content."""
    corpora = record.get("corpora", {})
    # a user's file of haystacks may change between two starts
    haystacks: dict[str, str] = {}
    for name in record.get("settings", {}).get("haystack") or ():
        if not name.isdigit():
            haystacks[name] = file_sha256(Path(name))
    relations = {name: limits.record() for name, limits in thresholds.items()}
    # the files of the corpora are compared one by one, so that a message can name the one
    identity = {
        "model": record.get("model"),
        "bos": record.get("bos"),
        "engine": record.get("engine"),
        "settings": record.get("settings"),
        "corpora": corpora.get("asked"),
        "haystacks": haystacks,
        "relations": relations,
        "versions": versions,
        "sums_version": SUMS_VERSION,
    }
    # the header of a checkpoint is read from JSON, where tuples are lists
    as_read_back: dict[str, Any] = json.loads(json.dumps(identity))
    return as_read_back


def _differences(header: dict[str, Any], run: dict[str, Any], text: TextWindows) -> Iterator[str]:
    yield from _unlike(header["run"], run, "")
    names = set(header["names"])
    in_one_alone = sorted(names.symmetric_difference(text.paths))
    if in_one_alone:
        name = in_one_alone[0]
        state = "gone" if name in names else "new"
        yield f"the corpus file {name} is {state}"
    for name, checksum in header["files"].items():
        path = text.paths.get(name)
        if path is not None and file_sha256(path) != checksum:
            yield f"the corpus file {name} has changed"


def _unlike(then: Any, now: Any, name: str) -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in then | now:
            yield from _unlike(then.get(key), now.get(key), f"{name} {key}".strip())
    elif then != now:
        yield f"its {name} was {then!r:.200}, and here it is {now!r:.200}"
