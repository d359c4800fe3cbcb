"""How far a run has come, on disk: its sums and its place, written about every minute.

After a kill the same command reads its windows again from the start, passes over the batches whose
sums are here, and goes on. Sums add exactly, so that it ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from headscope.corpus.read import file_sha256
from headscope.errors import RunError
from headscope.measure.stimuli import TextWindows
from headscope.measure.tally import Ended, Pass
from headscope.runs.lock import CHECKPOINT, unwritable
from headscope.runs.pattern_cache import UNREADABLE
from headscope.runs.store import tally_of
from headscope.runs.write import write_file

if TYPE_CHECKING:
    from numpy import ndarray

EVERY = 60.0
"""Seconds between two writings."""

_ADVICE = (
    "give the command of the run that was broken off to go on with it, add --overwrite to start "
    "anew, or choose another --out"
)
_FACTS, _DIGEST = "headscope", "sha256"
_PASSES = ("model", "twin")
_COUNTS = ("batches", "tokens", "halved")


@dataclass
class Checkpoint:
    """A run's two readings, and where they are kept."""

    work: Path | None
    """The run folder's workplace; nothing is kept when None."""
    run: dict[str, Any]
    """What the run is: another one must not go on from its sums."""
    text: TextWindows
    model: Pass
    twin: Pass
    every: float = EVERY
    _last: float = field(default_factory=time.monotonic)

    def keep(self) -> None:
        """Write the checkpoint when it is time for it.

        Raises:
            RunError: it cannot be written; the checkpoint before it is whole.
        """
        if self.work is None or time.monotonic() - self._last < self.every:
            return
        facts = {
            "run": self.run,
            "code": _code(),
            "names": list(self.text.paths),
            "files": self.text.files,
            "passes": {
                name: {count: getattr(getattr(self, name), count) for count in _COUNTS}
                for name in _PASSES
            },
            "ended": self.model.ended,
        }
        try:
            _write(self.work, json.dumps(facts), self._arrays())
        except SafetensorError as error:
            raise unwritable(self.work / CHECKPOINT, error) from error
        self._last = time.monotonic()

    @property
    def notes(self) -> list[str]:
        """What the reader of the results should know about how it was read."""
        count = self.model.halved + self.twin.halved
        note = f"{count} batches did not fit into memory and were read in smaller ones"
        return [note] if count else []

    def _arrays(self) -> dict[str, ndarray]:
        return {
            f"{name}.{key}": np.asarray(array, order="C")
            for name in _PASSES
            for key, array in getattr(self, name).tally.arrays().items()
            if getattr(self, name).batches
        }

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
            facts, arrays = _read(path)
            unlike = next(_differences(facts, self.run, self.text), None)
            if unlike is None:
                for name in _PASSES:
                    found = _pass(path, facts["passes"][name], arrays, name, self)
                    setattr(self, name, found)
                self.model.ended = {name: Ended(*each) for name, each in facts["ended"].items()}
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

    def remove(self) -> None:
        """Forget what was kept: the run is complete, or starts anew."""
        if self.work is not None:
            (self.work / CHECKPOINT).unlink(missing_ok=True)


def _write(work: Path, facts: str, arrays: dict[str, ndarray]) -> None:
    said = {_FACTS: facts, _DIGEST: _digest(facts, arrays)}
    write_file(work / CHECKPOINT, lambda path: save_file(arrays, path, said), overwrite=True)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, ndarray]]:
    with safe_open(path, "numpy") as file:
        said = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
    if said.get(_DIGEST) != _digest(said.get(_FACTS, ""), arrays):
        raise ValueError("its sha256 is not the one that it states")
    return json.loads(said[_FACTS]), arrays


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
    checkpoint: Checkpoint,
) -> Pass:
    empty = getattr(checkpoint, name).tally
    if not counts["batches"]:
        return Pass(empty)
    start = f"{name}."
    own = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
    tally = tally_of(path, own, empty.relations, (empty.numbers, empty.heads))
    batches, tokens, halved = (int(counts[count]) for count in _COUNTS)
    return Pass(tally, batches, tokens, halved)
