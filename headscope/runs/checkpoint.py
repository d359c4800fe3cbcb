"""The state of an unfinished run on disk: its sums and its place, written about every minute.

After a kill the same command reads its windows again from the start, passes over the batches whose
sums are here, and goes on. Sums add exactly, so that it ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from headscope.corpus.read import file_sha256
from headscope.errors import HeadscopeError, RunError, WriteError
from headscope.measure.tally import ReadState, StoppedEarly, Tally
from headscope.runs.fallback import claim, fallback_folders, is_own, lacks_room
from headscope.runs.folder import remove_own
from headscope.runs.packed_sums import pack_sums, unpack_sums
from headscope.runs.pattern_cache import UNREADABLE
from headscope.runs.room import free_bytes, megabytes, sums_bytes
from headscope.runs.state_file import read_state, write_state
from headscope.runs.workplace import CHECKPOINT, NEW, unwritable
from headscope.stimuli.text import TextWindows

if TYPE_CHECKING:
    from numpy import ndarray

EVERY = 60.0
"""Seconds between two writings."""

_ADVICE = (
    "give the command of the run that was broken off to go on with it, add --overwrite to start "
    "anew, or choose another --out"
)
_PASSES = ("model", "twin")
_COUNTS = ("batches", "tokens", "halved")


@dataclass
class RunCheckpoint:
    """A run's two readings, and where they are kept."""

    work: Path | None
    """The run folder's workplace; nothing is kept when None."""
    run: dict[str, Any]
    """What the run is: another one must not go on from its sums."""
    text: TextWindows
    model: ReadState
    twin: ReadState
    every: float = EVERY
    _last: float = field(default_factory=time.monotonic)

    def keep(self) -> None:
        """Write the checkpoint when it is time for it.

        Raises:
            RunError: it cannot be written; the message says where the sums are, and how to go on.
        """
        if self.work is None or time.monotonic() - self._last < self.every:
            return
        try:
            self._write(self.work)
        except (WriteError, SafetensorError) as error:
            raise self.stopped(error) from error
        self._last = time.monotonic()

    def _write(self, folder: Path) -> None:
        facts = {
            "run": self.run,
            "code": _code(),
            "names": list(self.text.paths),
            "files": self.text.files,
            "passes": {
                name: {count: getattr(getattr(self, name), count) for count in _COUNTS}
                for name in _PASSES
            },
            "stopped": self.model.stopped,
        }
        write_state(folder / CHECKPOINT, json.dumps(facts), self._arrays())

    def stopped(self, error: Exception) -> RunError:
        """The error of a run that cannot be written, whose sums are kept where they fit.

        That is its workplace, where a checkpoint that cannot be replaced stays valid, or else one
        of the `fallback_folders`; the same command finds them there.

        Args:
            error: what was said when it was written.
        """
        work = self.work
        if work is None:
            return RunError(str(error))
        remove_own(work / NEW)  # half of a run folder is in the way of its sums
        reason = str(error) if isinstance(error, HeadscopeError) else str(unwritable(work, error))
        lacks = ""
        if lacks_room(error):
            size = sum(array.nbytes for array in self._arrays().values())
            lacks = f"free {megabytes(2 * max(self.bytes, size))} there"
            with suppress(OSError):
                lacks += f" ({megabytes(free_bytes(work))} are free)"
        saved_in = self._save_anywhere()
        if saved_in is None and not (work / CHECKPOINT).is_file():
            lost = "the sums could be kept nowhere else and are lost"
            return RunError(f"{reason}; {lost}; {lacks or 'put that right'} and start anew")
        sums = f"the sums of {self.model.tokens:,} tokens are kept in {saved_in}"
        if saved_in is None:
            sums = f"the sums that were kept before in {work} are still there"
        way = "and give the same command again, which goes on from there"
        return RunError(f"{reason}; {sums}; {lacks or 'put that right'} {way}")

    def _save_anywhere(self) -> Path | None:
        """The folder where the sums were written just now; None where they do not fit anywhere."""
        if self.work is None:
            return None
        for folder in (self.work, *fallback_folders(self.work)):
            try:
                self._write(folder if folder == self.work else claim(folder))
            except (WriteError, SafetensorError, OSError):
                if folder != self.work:
                    with suppress(OSError):
                        folder.rmdir()
                continue
            return folder
        return None

    @property
    def bytes(self) -> int:
        """Bytes that the sums take at least; see `headscope.runs.room.sums_bytes`."""
        return sums_bytes(self.model.tally, self.run.get("settings") or {})

    @property
    def notes(self) -> list[str]:
        """Notes for the reader of the results on how the text was read."""
        count = self.model.halved + self.twin.halved
        note = f"{count} batches did not fit into memory and were read in smaller ones"
        return [note] if count else []

    def _arrays(self) -> dict[str, ndarray]:
        return {
            f"{name}.{key}": array
            for name in _PASSES
            if getattr(self, name).batches
            for key, array in pack_sums(getattr(self, name).tally).items()
        }

    def load(self) -> str:
        """Take over what an earlier process of the same run kept.

        Returns:
            One line that says how much is done; empty when nothing was kept.

        Raises:
            RunError: what was kept is damaged, or of another run; the message says which.
        """
        if self.work is None:
            return ""
        if (self.work / CHECKPOINT).is_file():
            self._take(self.work / CHECKPOINT)
        self._take_newer()
        if not self.model.batches and not self.twin.batches:
            return ""
        twin = f", and {self.twin.tokens:,} by the twin" if self.twin.batches else ""
        return (
            f"goes on with the run that was broken off: {self.model.tokens:,} tokens "
            f"in {self.model.batches:,} batches were read{twin}"
        )

    def _take(self, path: Path) -> None:
        """Take over the sums of a file.

        Raises:
            RunError: it is damaged, or of another run; nothing is taken over.
        """
        try:
            facts, arrays = read_state(path)
            unlike = next(_differences(facts, self.run, self.text), None)
            if unlike is None:
                model, twin = (
                    _pass(path, facts["passes"][name], arrays, name, self) for name in _PASSES
                )
                model.stopped = {
                    stimulus: StoppedEarly(*values) for stimulus, values in facts["stopped"].items()
                }
        except UNREADABLE as error:
            raise RunError(
                f"{path}: this is not what a run wrote (edited, cut short, or from elsewhere): "
                f"{error!s:.200}; remove it or add --overwrite to start anew"
            ) from error
        if unlike is not None:
            raise RunError(f"{path} is of another run than this: {unlike}; {_ADVICE}")
        self.model, self.twin = model, twin

    def _take_newer(self) -> None:
        """Take over the sums that did not fit beside the run, if they are further on."""
        if self.work is None:
            return
        for folder in fallback_folders(self.work):
            if not is_own(folder):
                continue
            other = replace(self)
            with suppress(RunError):  # of another run that once had this name
                other._take(folder / CHECKPOINT)
                if _batches(other) > _batches(self):
                    self.model, self.twin = other.model, other.twin

    def remove(self) -> None:
        """Forget what was kept: the run is complete, or starts anew."""
        if self.work is None:
            return
        (self.work / CHECKPOINT).unlink(missing_ok=True)
        for folder in filter(is_own, fallback_folders(self.work)):
            with suppress(OSError):  # something else is in it
                (folder / CHECKPOINT).unlink(missing_ok=True)
                folder.rmdir()


def _batches(checkpoint: RunCheckpoint) -> int:
    return checkpoint.model.batches + checkpoint.twin.batches


def _differences(facts: dict[str, Any], run: dict[str, Any], text: TextWindows) -> Iterator[str]:
    if facts["code"] != _code():
        yield "headscope's own code has changed since"
    yield from _unlike(facts["run"], run, "")
    if odd := sorted(set(facts["names"]) ^ set(text.paths)):
        there = "new" if odd[0] in text.paths else "gone"
        yield f"the corpus file {odd[0]} is {there}"
    for name, sha256 in facts["files"].items():
        if name in text.paths and file_sha256(text.paths[name]) != sha256:
            yield f"the corpus file {name} has changed"


@cache
def _code() -> str:
    """The sha256 of headscope's code: one version has many of them between two releases."""
    home, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(home.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _unlike(then: Any, now: Any, name: str) -> Iterator[str]:
    if isinstance(then, dict) and isinstance(now, dict):
        for key in [*then, *(key for key in now if key not in then)]:
            yield from _unlike(then.get(key), now.get(key), f"{name} {key}".strip())
    elif isinstance(then, dict) and now is None:
        yield f"it had {name}, and here there is none"
    elif isinstance(now, dict) and then is None:
        yield f"it had no {name}"
    elif then != now:
        yield f"its {name} was {then!r:.200}, and here it is {now!r:.200}"


def _pass(
    path: Path,
    counts: dict[str, int],
    arrays: dict[str, ndarray],
    name: str,
    checkpoint: RunCheckpoint,
) -> ReadState:
    empty = getattr(checkpoint, name).tally
    if not counts["batches"]:
        return ReadState(Tally.zeros(empty.relations, empty.numbers, empty.heads))
    start = f"{name}."
    pass_arrays = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
    tally = unpack_sums(path, pass_arrays, empty.relations, (empty.numbers, empty.heads))
    batches, tokens, halved = (int(counts[count]) for count in _COUNTS)
    return ReadState(tally, batches, tokens, halved)
