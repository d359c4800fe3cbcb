"""Progress of long work, for the command line and Python alike: a bar, and an estimate."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from headscope.printing import no_other_bars, print_above_bars

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is in all."""
OnMessage = Callable[[str], None]
"""Called with a line for the user."""

COLUMNS, ROWS = 80, 24
LOADING = "loading the model"
SAMPLE_SECONDS = 3.0
"""How long work is watched before the time that is left is estimated from it."""
LONG_SECONDS = 20.0
"""Time left from which on the estimate is told."""
QUIET_SECONDS = 2.0
"""How long work that loads no model goes on before its bar appears."""


@dataclass(frozen=True)
class ProgressOutput:
    """Progress for a person: a bar where one waits, and lines wherever standard error goes."""

    on_message: OnMessage


Progress = bool | OnProgress | ProgressOutput
"""What a caller says of progress: True for a bar on standard error where a person waits (a terminal
or a notebook), False for none, or a function that is called with the amounts."""


class ProgressBar:
    """Callback of work as it goes on: it moves a bar, and estimates once what time is left."""

    def __init__(
        self,
        on_progress: OnProgress,
        on_message: OnMessage,
        *,
        at_most: bool = False,
    ) -> None:
        self._on_progress, self._on_message = on_progress, on_message
        self._bound = "at most about" if at_most else "about"
        self._start: tuple[float, int] | None = None
        self._done, self._is_estimate_shown = 0, False

    def __call__(self, done: int, total: int) -> None:
        """So much is done, of so much."""
        self._on_progress(done, total)
        if done < self._done:  # another part with its own sum
            self._start = None
        if self._start is None and done > 0:  # the first step warms up, and says little
            self._start, self._is_estimate_shown = (time.perf_counter(), done), False
        self._done = done
        seconds = self._seconds_left(total)
        if seconds is not None and not self._is_estimate_shown:
            self._is_estimate_shown = True
            if seconds >= LONG_SECONDS:
                self.say(f"{self._bound} {duration(seconds)} to go, estimated from the first part")

    def say(self, line: str) -> None:
        """Tell the user a line."""
        self._on_message(line)

    def _seconds_left(self, total: int) -> float | None:
        if self._start is None:
            return None
        begun, before = self._start
        elapsed = time.perf_counter() - begun
        if self._done <= before or elapsed < SAMPLE_SECONDS:
            return None
        return elapsed / (self._done - before) * (total - self._done)


@contextmanager
def progress_bar(
    progress: Progress,
    doing: str = "reading attention",
    *,
    unit: str = "tokens",
    loads: bool = True,
    at_most: bool = False,
) -> Iterator[ProgressBar]:
    """Callback of work as it goes on, as its caller wants to see it; the bar goes when it ends.

    Args:
        progress: what the caller said.
        doing: the words before the bar.
        unit: what is counted.
        loads: whether a model is loaded first, which the bar says.
        at_most: whether the work may end before its sum is reached, as `classify` does.
    """
    if not isinstance(progress, bool | ProgressOutput):
        yield ProgressBar(progress, silent)
        return
    waits = progress is not False and person_waits()
    on_message = progress.on_message if isinstance(progress, ProgressOutput) else silent
    if not waits:
        with no_other_bars() if progress is False else nullcontext():
            yield ProgressBar(silent, on_message, at_most=at_most)
        return
    with _drawn_bar(unit, loads=loads) as bar:

        def draw(done: int, total: int) -> None:
            begins, bar.bar_format = bar.bar_format is not None or bar.delay <= 0 == bar.n, None
            _set_total(bar, total)
            bar.set_description(doing, refresh=False)
            bar.update(done - bar.n)
            if begins:  # else it would go on saying that the model is loaded for a while
                bar.refresh()

        show_message = on_message if isinstance(progress, ProgressOutput) else print_above_bars
        yield ProgressBar(draw, show_message, at_most=at_most)


def person_waits() -> bool:
    """True where somebody sees a bar: standard error is a terminal, or this a notebook's kernel."""
    return (sys.stderr is not None and sys.stderr.isatty()) or in_notebook()


def in_notebook() -> bool:
    """True in a notebook's kernel, by the rule of `tqdm.auto`."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "ipykernel.zmqshell" in sys.modules and shell is not None


def duration(seconds: float) -> str:
    """A time in words, no finer than an estimate is.

    >>> duration(42.3), duration(151), duration(9_000)
    ('40 seconds', '3 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5_400 else f"{seconds / 3600:.1f} hours"


@contextmanager
def _drawn_bar(unit: str, *, loads: bool) -> Iterator[Any]:
    with warnings.catch_warnings():  # without ipywidgets a notebook gets a bar of text
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    with tqdm(
        total=None,
        desc=LOADING if loads else None,
        bar_format="{desc}" if loads else None,
        unit=f" {unit}",
        unit_scale=True,
        leave=False,
        **_width(),
        delay=0 if loads else QUIET_SECONDS,
        file=sys.stderr,
        disable=False,
    ) as bar:
        yield bar


def _set_total(bar: Any, total: int) -> None:
    """The sum of a bar that had none, or another; a notebook's widget keeps one of its own."""
    bar.total = total
    if container := getattr(bar, "container", None):
        _, fill, _ = container.children
        fill.max = total


def _width() -> dict[str, Any]:
    """Width of a bar: the terminal's, or as most are where that does not know it."""
    try:
        known = os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError, AttributeError):
        known = False
    return {"dynamic_ncols": True} if known else {"ncols": COLUMNS, "nrows": ROWS}


def silent(*arguments: Any) -> None:
    """Nothing is shown."""
