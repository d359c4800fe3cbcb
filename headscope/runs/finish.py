"""The beginning and the end of a run that is kept on the way.

One that was broken off goes on, or says why it cannot; at the end the folder is written, or the
sums are kept where they fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headscope.errors import RunError, WriteError
from headscope.relations.relation import TagThresholds
from headscope.runs.checkpoint import RunCheckpoint
from headscope.runs.folder import RUN, is_run, readable_path
from headscope.runs.room import check_room
from headscope.runs.run_json import read_record
from headscope.runs.store import save_by
from headscope.runs.workplace import check_free
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


def resume(
    checkpoint: RunCheckpoint, folder: Path, *, overwrite: bool, on_message: Callable[[str], None]
) -> bool:
    """Take over the sums that an earlier process of this run kept, if it kept any.

    Args:
        checkpoint: the run's checkpoint, still empty.
        folder: the run folder.
        overwrite: start anew where the sums are of another run, or damaged.
        on_message: called with one line if there are sums.

    Returns:
        Whether the run folder may be replaced. It may if the process before this one was killed
        between moving the finished run there and removing the checkpoint.

    Raises:
        RunError: the sums are not usable, a run is in the folder, or its disk has no room.
    """
    try:
        line = checkpoint.load()
    except RunError as error:
        if not overwrite:
            raise
        checkpoint.remove()
        line = f"starts anew, because {str(error).partition('; ')[0]}"
    if line:
        on_message(line)
    overwrite = overwrite or (bool(line) and _is_this(folder, checkpoint.run))
    check_free(folder, overwrite=overwrite)
    check_room(folder, checkpoint.bytes)
    return overwrite


def run_facts(
    info: dict[str, Any], rules: dict[str, TagThresholds], versions: dict[str, str]
) -> dict[str, Any]:
    """Identity of a run: all on which its sums depend, but for the corpora's content.

    Args:
        info: what `run.json` says of it.
        rules: the rules of its relations.
        versions: the packages that it runs with.
    """
    facts = {name: info.get(name) for name in ("model", "bos", "engine", "settings")}
    facts["corpora"] = info.get("corpora", {}).get("asked")
    facts["relations"] = {name: asdict(rule) for name, rule in rules.items()}
    facts["versions"] = versions
    as_read_back: dict[str, Any] = json.loads(json.dumps(facts))
    return as_read_back


def _is_this(folder: Path, run: dict[str, Any]) -> bool:
    if not is_run(folder):
        return False
    info, rules = read_record(readable_path(folder, RUN))
    return run_facts(info, rules, info["provenance"]["versions"]) == run
