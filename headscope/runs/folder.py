"""The run folder: all its files, and the one class that reads, writes, locks and replaces it.

`headscope.runs.contents` lists its files, which `RunFolder.save` writes.

Unfinished work lies next to the folder, in `.NAME.partial`:

============= ================================================================================
file          purpose
============= ================================================================================
`lock`        locked by the one process that works on this run
`state.npz`   checkpoint of the sums, about once a minute while the model reads; removed when
              the run is saved. It alone survives a stop: see `headscope.runs.checkpoint`
`new/`        the new run folder, until it is complete and moved to its place
`old/`        the run folder that is replaced, until the new one is in its place
============= ================================================================================

No file is changed in place, so that a run folder is complete or absent. If a process is killed
between two moves, the next one finishes or undoes them. Other files in the folder stay.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from io import BytesIO
from pathlib import Path

from filelock import FileLock, Timeout

from headscope.errors import RunError, RunStoppedError, WriteError
from headscope.paths import exists, resolved
from headscope.runs.contents import (
    AGAIN,
    CHECKED,
    PATTERNS,
    RECORD,
    REPORT,
    SUMS,
    reading,
    run_files,
    run_from_files,
)
from headscope.runs.tables import EVIDENCE_TABLE, RunTable
from headscope.runs.write import LEFTOVERS, check_absent, check_writable, write_files, writing
from headscope.statistics.result import Result

LOCK, CHECKPOINT = "lock", "state.npz"
NEW, OLD = "new", "old"
PACKED = {EVIDENCE_TABLE.file: f"{EVIDENCE_TABLE.file}.gz"}
"""Files that the folder holds compressed, and their names there; checksums are of their content."""
FILES = tuple(PACKED.get(name, name) for name in (*CHECKED, REPORT, RECORD))
"""All files that headscope writes into a run folder; any other is the user's."""
MOST_BYTES = 2**30
"""Bytes of a compressed file's content that are read: a small file can unpack to any size."""


class RunFolder:
    """The folder of a run, which need not exist yet.

    Args:
        path: the folder, or a link to it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @cached_property
    def _destination(self) -> Path:
        """The real path: if a link leads to the folder, the folder is replaced and not the link."""
        return resolved(self.path)

    @cached_property
    def work(self) -> Path:
        """The folder of unfinished work."""
        return self._destination.with_name(f".{self._destination.name}.partial")

    @cached_property
    def _lock(self) -> FileLock:
        return FileLock(self.work / LOCK)

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the unfinished run."""
        return self.work / CHECKPOINT

    def save(self, run: Result, *, report: Callable[[], str], overwrite: bool = False) -> None:
        """Write a run, so that the folder is either complete or absent.

        Of a run that is replaced nothing stays; files that headscope did not write are kept.

        Raises:
            RunError: see `check_free`; or another process works on this run.
            WriteError: the folder cannot be written.
        """
        with self.locked():
            self.check_free(overwrite=overwrite)
            if run.tally is None and (self.path / SUMS).is_file():
                raise RunError(
                    f"{self.path} contains the sums of its run, and this run was loaded without; "
                    "load it with_tally=True, or save it elsewhere"
                )
            files = run_files(run, self.path, report())
            for name in PACKED:
                # without a time, so that the same run gives the same bytes
                files[PACKED[name]] = gzip.compress(files.pop(name), 6, mtime=0)
            with writing(self.path):
                write_files({self.work / NEW / name: content for name, content in files.items()})
                if self._destination.exists():
                    self._destination.rename(self.work / OLD)
                (self.work / NEW).rename(self._destination)
                self._tidy()

    def load(self, *, with_tally: bool = False) -> Result:
        """Read the run; each file that is read is compared with its checksum in `run.json`.

        Args:
            with_tally: read the sums too, if there are any, which merging, halves and the bootstrap
                need.

        Raises:
            RunError: the run was altered, cut short, put together by hand, or made by an earlier
                version.
        """
        return run_from_files(self._content, self.path, with_tally=with_tally)

    def file(self, name: str) -> Path:
        """The path of a file in the folder.

        Raises:
            RunError: a link leads out of the folder.
        """
        path = self.path / name
        with reading(path):
            real = resolved(path)
            if not real.is_relative_to(self._destination):
                raise RunError(
                    f"{path} leads out of the run folder, to {real}; put the file itself there"
                )
        return path

    def _content(self, name: str) -> bytes:
        path = self.file(PACKED.get(name, name))
        # a pipe would never end, and a folder has no bytes
        if not path.is_file():
            there = "no regular file" if os.path.lexists(path) else "missing"
            raise RunError(f"{path}: this file of the run is {there}; {AGAIN}")
        with reading(path):
            raw = path.read_bytes()
            return gzip.open(BytesIO(raw)).read(MOST_BYTES) if name in PACKED else raw

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run for this process, which may lock it again while it is locked.

        What a killed process left is put right first. Afterwards the folder of unfinished work is
        removed unless a checkpoint is in it.

        Raises:
            RunError: another process works on this run.
            WriteError: nothing can be written there.
            RunStoppedError: the work was interrupted, and a checkpoint says how far it had come.
        """
        with writing(self.path):
            is_outer = not self._lock.is_locked
            parent_is_new = not self._destination.parent.exists()
            if is_outer:
                # what a killed process left is put right before this one writes
                self.work.mkdir(parents=True, exist_ok=True)
                try:
                    self._lock.acquire(timeout=0)
                except Timeout as error:
                    raise RunError(
                        f"{self.path}: another process is writing this run; wait for it, or choose "
                        "another --out"
                    ) from error
                try:
                    self._tidy()
                except OSError:
                    self._lock.release()
                    raise
        try:
            yield
        except KeyboardInterrupt as stop:
            if not self.checkpoint.is_file():
                raise
            raise RunStoppedError(
                f"stopped; sums are kept in {self.work}, and the same command resumes from there"
            ) from stop
        finally:
            if is_outer:
                # what cannot be removed now is put right by the next process
                with suppress(OSError):
                    self._tidy()
                    if not self.checkpoint.exists():
                        (self.work / LOCK).unlink()
                        self.work.rmdir()
                        if parent_is_new:  # a run that failed leaves no empty folder around its own
                            self._destination.parent.rmdir()
                self._lock.release()

    def _tidy(self) -> None:
        """Put right what was being moved, and remove files that are half written."""
        # a folder that was being replaced comes back, or gives its foreign files to the new one
        old = self.work / OLD
        if old.exists():
            if self._destination.exists():
                # files that are not headscope's own move along; what the other has under the same
                # name stays
                written = {old / name for name in FILES}
                patterns = (old / PATTERNS).parent
                for foreign in [*old.iterdir(), *(patterns.iterdir() if patterns.is_dir() else ())]:
                    target = self._destination / foreign.relative_to(old)
                    if foreign in written or foreign == patterns or os.path.lexists(target):
                        continue
                    target.parent.mkdir(exist_ok=True)
                    foreign.rename(target)
                _remove_own(old)
            else:
                old.rename(self._destination)
        _remove_own(self.work / NEW)
        for path in self.work.glob(LEFTOVERS):
            path.unlink()

    def check_free(self, *, overwrite: bool) -> None:
        """Refuse a folder that holds something that a run must not replace.

        Raises:
            RunError: a run is there already (and `overwrite` is off), or other files are; or it is
                the working folder.
        """
        with writing(self.path):
            check_left(self.path)
            if not self.path.exists() or not any(self.path.iterdir()):
                return
        if not is_run(self.path):
            raise RunError(
                f"{self.path} contains other files and no run; choose an empty or new folder"
            )
        if not overwrite:
            raise RunError(
                f"{self.path} contains a run already; choose another --out, or add --overwrite"
            )

    def is_writable(self) -> bool:
        """True if there is a run, and files can be put in its place."""
        try:
            check_writable(self.path)
        except WriteError:
            return False
        return is_run(self.path)

    def check_table(self, table: RunTable, *, overwrite: bool) -> None:
        """Refuse a run folder into which a study's table cannot be put, before minutes of work.

        Raises:
            RunError: there is no run folder.
            WriteError: it has such a table already (and `overwrite` is off), or nothing can be
                written there.
        """
        if not is_run(self.path):
            raise RunError(
                f"{self.path} is not a run folder, into which a table could be written; state a "
                ".csv file with --out"
            )
        check_left(self.path)
        try:
            check_writable(self.path)
        except WriteError as error:
            raise WriteError(f"{error}; state a .csv file with --out") from error
        if not overwrite:
            check_absent(self.path / table.file, "add --overwrite to replace it")


def is_run(folder: Path) -> bool:
    """True if there is a run; False for what can be no folder at all."""
    return exists(folder / RECORD)


def check_foreign(path: Path) -> None:
    """Refuse to write another table or picture over a file that belongs to a run.

    Raises:
        RunError: the file is one of a run's own.
    """
    if path.name in FILES and is_run(path.parent):
        raise RunError(f"{path} is a file of the run in {path.parent}; choose another")


def check_left(folder: Path) -> None:
    """Refuse to replace the folder in which someone works, or one that holds it.

    Raises:
        RunError: it is such a folder.
    """
    with writing(folder):
        destination = resolved(folder)
        is_left = not destination.exists() or not Path.cwd().is_relative_to(destination)
    if not is_left:
        raise RunError(
            f"{folder} is the working folder or holds it, and results are moved into place whole; "
            f"change to another folder and name {destination.name} from there"
        )


def _remove_own(folder: Path) -> None:
    """Remove what headscope writes into a run folder, and the folder if nothing else is in it."""
    patterns = (folder / PATTERNS).parent
    leftovers = [path for parent in (folder, patterns) for path in parent.glob(LEFTOVERS)]
    for path in [*(folder / name for name in FILES), *leftovers]:
        path.unlink(missing_ok=True)
    for path in patterns, folder:
        with suppress(OSError):  # it holds something of the user's, or was never there
            path.rmdir()
