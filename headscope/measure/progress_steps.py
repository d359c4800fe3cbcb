"""Counts of work that is done: the steps of a study, of several runs, the tokens of one run."""

from __future__ import annotations

import time
from functools import partial

from headscope.measure.progress import OnProgress


class Steps:
    """Turns "so many more" into "so many of all"."""

    def __init__(self, on_progress: OnProgress, total: int) -> None:
        self._on_progress, self._done, self._total = on_progress, 0, total
        on_progress(0, total)

    def advance(self, count: int = 1) -> None:
        """So many steps more."""
        self._done += count
        self._on_progress(self._done, self._total)


class RunSteps:
    """Turns what each of several runs tells into one sum; those to come count like the last one."""

    def __init__(self, on_progress: OnProgress, runs: int) -> None:
        self._on_progress, self._runs = on_progress, runs
        self._done: dict[int, int] = {}
        """By the runs that have begun, in their order; one that failed has what was read."""
        self._total = 0

    def of(self, run: int) -> OnProgress:
        """The callback of the run of this number."""
        return partial(self.of_run, run)

    def of_run(self, run: int, done: int, total: int) -> None:
        """A run has done so much, of so much."""
        self._done[run] = done
        newest = next(reversed(self._done))
        if run == newest:
            self._total = total
        before = sum(steps for number, steps in self._done.items() if number != newest)
        runs = self._runs - len(self._done) + 1
        self._on_progress(before + self._done[newest], before + self._total * runs)


class Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a stage and begin the next."""
        now = time.perf_counter()
        self.laps[name], self._last = round(now - self._last, 2), now


class Count:
    """Turns "so many more tokens" into "so many of all"; how many come is known at the end."""

    def __init__(self, progress: OnProgress, max_tokens: int, clock: Clock) -> None:
        self._progress, self._most, self._clock = progress, max_tokens, clock
        self._done, self._total = 0, 0
        self.of_model(0)

    def of_model(self, tokens: int) -> None:
        """The model has read so many more."""
        self._done += tokens
        self._progress(self._done, self._most)

    def leaves_out(self, tokens: int) -> None:
        """So many will not be read."""
        self._most -= tokens

    def twin_begins(self, tokens: int) -> None:
        """The model is done, and its twin is to read so many."""
        self._total = self._done + tokens
        self._clock.lap("measure")

    def of_twin(self, tokens: int) -> None:
        """The twin has read so many more."""
        self._done += tokens
        self._progress(self._done, self._total)

    def of_reread(self, done: int, total: int) -> None:
        """So much is done of what comes after reading: shadows, then examples."""
        self._progress(self._done + done, self._done + total)
        if done == total:
            self._done += total
