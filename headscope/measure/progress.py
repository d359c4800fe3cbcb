"""How far a run is, and what its stages took."""

from __future__ import annotations

import time
from collections.abc import Callable

from headscope.measure.stimuli import TextWindows

Progress = Callable[[int, int], None]
"""Called with the tokens done and the tokens in all."""


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

    def __init__(self, progress: Progress, text: TextWindows, synthetic: int, clock: Clock) -> None:
        self._progress, self._text, self._synthetic, self._clock = progress, text, synthetic, clock
        self._done, self._total = 0, 0
        self.of_model(0)

    def of_model(self, tokens: int) -> None:
        """The model has read so many more."""
        self._done += tokens
        self._progress(self._done, self._text.max_tokens + self._synthetic)

    def twin_begins(self, tokens: int) -> None:
        """The model is done, and its twin is to read so many."""
        self._total = self._done + tokens
        self._clock.lap("measure")

    def of_twin(self, tokens: int) -> None:
        """The twin has read so many more."""
        self._done += tokens
        self._progress(self._done, self._total)

    def of_examples(self, done: int, total: int) -> None:
        """So much of what examples are cut out of is read."""
        self._progress(self._done + done, self._done + total)
