"""The state of an unfinished run on disk: its sums and its place, written about every minute.

After a kill the same command reads its windows again from the start, passes over the batches whose
sums are here, and goes on. Sums add exactly, so that it ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from headscope.corpus.read import file_sha256
from headscope.errors import HeadscopeError, RunError, WriteError
from headscope.measure.tally import ReadState, StoppedEarly, Tally
from headscope.relations.relation import TagThresholds
from headscope.runs.folder import RUN, UNREADABLE, is_run, readable_path, remove_own
from headscope.runs.run_json import read_record
from headscope.runs.store import save_by
from headscope.runs.sums import pack_sums, unpack_sums
from headscope.runs.workplace import CHECKPOINT, NEW, check_free, check_room, unwritable
from headscope.runs.write import write_file
from headscope.statistics.result import Result
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
_FACTS, _DIGEST = "headscope", "sha256"
_PACKED = 400
"""Sums in memory are at most so many times as large as when they are packed: of 64 blocks each
relation has queries in one at least, and of 8 bytes each sum keeps one or more."""


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
            self._write(self.work / CHECKPOINT)
        except (WriteError, SafetensorError) as error:
            raise self.stopped(error) from error
        self._last = time.monotonic()

    def _write(self, path: Path) -> None:
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
        arrays = {
            f"{name}.{key}": array
            for name in _PASSES
            if getattr(self, name).batches
            for key, array in pack_sums(getattr(self, name).tally).items()
        }
        text = json.dumps(facts)
        metadata = {_FACTS: text, _DIGEST: _digest(text, arrays)}
        write_file(path, lambda new: save_file(arrays, new, metadata), overwrite=True)

    def stopped(self, error: Exception) -> RunError:
        """The error of a run that cannot be written; its sums are kept if there is room for them.

        Args:
            error: raised when it was written.
        """
        if self.work is None:
            return RunError(str(error))
        remove_own(self.work / NEW)  # half of a run folder is in the way of its sums
        with suppress(WriteError, SafetensorError):  # the checkpoint that was there stays whole
            self._write(self.work / CHECKPOINT)
        reason = error if isinstance(error, HeadscopeError) else unwritable(self.work, error)
        if not (self.work / CHECKPOINT).is_file():
            return RunError(f"{reason}; the sums are lost; free room there and start anew")
        return RunError(
            f"{reason}; the sums are kept in {self.work}; free room there and give the same "
            "command again, which goes on from there"
        )

    @property
    def bytes(self) -> int:
        """Bytes that a run's sums take on the disk: all of them, or the least when packed."""
        settings = self.run.get("settings") or {}
        size = self.model.tally.size * (2 if settings.get("twin", True) else 1)
        return size if settings.get("keep_sums") else size // _PACKED

    @property
    def notes(self) -> list[str]:
        """Notes for the reader of the results on how the text was read."""
        count = self.model.halved + self.twin.halved
        note = f"{count} batches did not fit into memory and were read in smaller ones"
        return [note] if count else []

    def load(self) -> str:
        """Take over what an earlier process of the same run kept.

        Returns:
            One line that says how much is done; empty when nothing was kept.

        Raises:
            RunError: what was kept is damaged, or of another run; the message says which.
        """
        if self.work is None or not (self.work / CHECKPOINT).is_file():
            return ""
        path = self.work / CHECKPOINT
        try:
            facts, arrays = _read_state(path)
            unlike = next(_differences(facts, self.run, self.text), None)
            if unlike is None:
                self.model, self.twin = (
                    _pass(path, facts["passes"][name], arrays, name, self) for name in _PASSES
                )
                self.model.stopped = {
                    stimulus: StoppedEarly(*values) for stimulus, values in facts["stopped"].items()
                }
        except UNREADABLE as error:
            raise RunError(
                f"{path}: this is not what a run wrote (edited, cut short, or from elsewhere): "
                f"{error!s:.200}; remove it or add --overwrite to start anew"
            ) from error
        if unlike is not None:
            raise RunError(f"{path} is of another run than this: {unlike}; {_ADVICE}")
        twin = f", and {self.twin.tokens:,} by the twin" if self.twin.batches else ""
        return (
            f"goes on with the run that was broken off: {self.model.tokens:,} tokens "
            f"in {self.model.batches:,} batches were read{twin}"
        )

    def resume(self, folder: Path, *, overwrite: bool, on_message: Callable[[str], None]) -> bool:
        """Take over the sums that an earlier process of this run kept, if it kept any.

        Args:
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
            line = self.load()
        except RunError as error:
            if not overwrite:
                raise
            self.remove()
            line = f"starts anew, because {str(error).partition('; ')[0]}"
        if line:
            on_message(line)
        overwrite = overwrite or (bool(line) and _is_this(folder, self.run))
        check_free(folder, overwrite=overwrite)
        check_room(folder, self.bytes)
        return overwrite

    def finish(
        self, run: Result, folder: Path, *, report: Callable[[], str], overwrite: bool
    ) -> None:
        """Write a run folder and forget the sums; see `headscope.runs.store.save_by`.

        Args:
            run: what to write.
            folder: the run folder.
            report: draws the page that lies beside the tables.
            overwrite: replace a run that is there already.

        Raises:
            RunError: it cannot be written; the message says where the sums are, and how to go on.
        """
        if self.work is None:
            return
        try:
            save_by(self.work, run, folder, report=report, overwrite=overwrite)
        except (RunError, WriteError) as error:
            raise self.stopped(error) from error
        self.remove()

    def remove(self) -> None:
        """Forget what was kept: the run is complete, or starts anew."""
        if self.work is not None:
            (self.work / CHECKPOINT).unlink(missing_ok=True)


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


def _read_state(path: Path) -> tuple[dict[str, Any], dict[str, ndarray]]:
    """The facts and the arrays of a checkpoint.

    Raises:
        ValueError: the content is not what its own sha256 says; others of `UNREADABLE` for what is
            no such file.
    """
    with safe_open(path, "numpy") as file:
        metadata = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
    if metadata.get(_DIGEST) != _digest(metadata.get(_FACTS, ""), arrays):
        raise ValueError("its sha256 is not the one that it states")
    return json.loads(metadata[_FACTS]), arrays


def _digest(facts: str, arrays: dict[str, ndarray]) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\0{name}\0{array.dtype.str}\0{arrays[name].shape}\0".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


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
