"""The end of a run: its folder is written, or its sums are kept where they fit."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headscope.errors import HeadscopeError, RunError, WriteError
from headscope.runs.checkpoint import RunCheckpoint
from headscope.runs.folder import remove_own
from headscope.runs.lock import NEW
from headscope.runs.store import save, save_by
from headscope.statistics.result import Result


def finish(
    checkpoint: RunCheckpoint,
    run: Result,
    folder: Path,
    *,
    report: Callable[[], str],
    overwrite: bool,
) -> None:
    """Write a run folder and forget the sums that were kept; see `headscope.runs.store.save_by`.

    Args:
        checkpoint: the run's sums, with its workplace.
        run: what to write.
        folder: the run folder.
        report: draws the page that lies beside the tables.
        overwrite: replace a run that is there already.

    Raises:
        RunError: it cannot be written; the message says where the sums are, and how to go on.
    """
    if checkpoint.work is None:
        return
    try:
        save_by(checkpoint.work, run, folder, report=report, overwrite=overwrite)
    except (RunError, WriteError) as error:
        raise checkpoint.stopped(error) from error
    checkpoint.remove()


def finish_joined(
    work: Path, run: Result, folder: Path, *, report: Callable[[], str], overwrite: bool
) -> None:
    """Write the run of a model with several readings, of which no sums are kept on the way.

    Raises:
        RunError: it cannot be written there; the message says where the whole run is instead.
    """
    try:
        save_by(work, run, folder, report=report, overwrite=overwrite)
    except (RunError, WriteError) as error:
        remove_own(work / NEW)
        other = _saved_elsewhere(run, folder, report)
        if other is None:
            raise
        raise RunError(f"{error}; the whole run is kept in {other}, to be moved there") from error


def _saved_elsewhere(run: Result, folder: Path, report: Callable[[], str]) -> Path | None:
    """The run as a folder in a temporary one; None where it does not fit there either."""
    with suppress(OSError):
        temporary = Path(tempfile.mkdtemp(prefix="headscope-"))
        try:
            return save(run, temporary / (folder.name or "run"), report=report)
        except HeadscopeError:
            shutil.rmtree(temporary, ignore_errors=True)
    return None
