"""Progress of long work, for the command line and Python alike: a bar or lines, and counts of
steps.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

from pydantic import Field

from headscope.options import Flag
from headscope.printing import no_other_bars

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is in all."""

COLUMNS, ROWS = 80, 24
LOADING = "loading the model"
QUIET_SECONDS = 2.0
"""Seconds before the bar of work without a model appears."""
LINE_SECONDS = 60.0
"""Seconds between the lines of progress that stand in for a bar."""

Progress = Annotated[
    bool | OnProgress,
    Flag(""),
    Field(
        description="True for a progress bar on a terminal or in a notebook, and elsewhere for a "
        "line a minute on standard error; False for neither; or a function that is called with the "
        "amount done and the whole amount."
    ),
]


@contextmanager
def progress_bar(
    progress: Progress,
    doing: str = "reading attention",
    *,
    unit: str = "tokens",
    loads: bool = True,
) -> Iterator[OnProgress]:
    """Callback of work as it goes on, as its caller wants to see it; the bar goes when it ends.

    If nobody sees a bar, a line a minute goes to standard error, so that a log shows that the work
    goes on.

    Args:
        progress: the caller's choice.
        doing: the words before the bar.
        unit: what is counted.
        loads: whether a model is loaded first, which the bar says.
    """
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        with no_other_bars():
            yield silent
        return
    if sys.stderr is None:
        yield silent
        return
    if not person_waits():
        with _Lines(doing, unit, loads=loads) as lines:
            yield lines.update
        return
    with _drawn_bar(unit, loads=loads) as bar:

        def draw(done: int, total: int) -> None:
            begins, bar.bar_format = bar.bar_format is not None or bar.delay <= 0 == bar.n, None
            _set_total(bar, total)
            bar.set_description(doing, refresh=False)
            bar.update(done - bar.n)
            if begins:  # else it would go on saying that the model is loaded for a while
                bar.refresh()

        yield draw


def person_waits() -> bool:
    """True if somebody sees a bar: standard error is a terminal, or this a notebook's kernel."""
    return (sys.stderr is not None and sys.stderr.isatty()) or in_notebook()


def in_notebook() -> bool:
    """True in a notebook's kernel, by the rule of `tqdm.auto`."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "ipykernel.zmqshell" in sys.modules and shell is not None


class _Lines:
    """A line of progress every `LINE_SECONDS`, from a thread of its own.

    Loading a model, for example, calls no callback for minutes.
    """

    def __init__(self, doing: str, unit: str, *, loads: bool) -> None:
        self._doing, self._unit = doing, unit
        self._state = LOADING if loads else doing
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print_lines, daemon=True)

    def __enter__(self) -> _Lines:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def update(self, done: int, total: int) -> None:
        """Take the amount done and the whole amount for the next line."""
        self._state = f"{self._doing}: {done:,} of {total:,} {self._unit}"

    def _print_lines(self) -> None:
        start = time.monotonic()
        while not self._ended.wait(LINE_SECONDS):
            minutes = (time.monotonic() - start) / 60
            # a closed stream is no reason to end the work
            with suppress(OSError, ValueError):
                print(f"headscope: {minutes:.0f} min: {self._state}", file=sys.stderr, flush=True)


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
    """Width of a bar: the terminal's, or the most common one if that is not known."""
    try:
        known = os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError, AttributeError):
        known = False
    return {"dynamic_ncols": True} if known else {"ncols": COLUMNS, "nrows": ROWS}


def silent(*arguments: Any) -> None:
    """Show nothing."""


class Steps:
    """Turns "so many more" into "so many of all"."""

    def __init__(self, on_progress: OnProgress, total: int) -> None:
        self._on_progress, self._done, self._total = on_progress, 0, total
        on_progress(0, total)

    def advance(self, count: int = 1) -> None:
        """Add some steps."""
        self._done += count
        self._on_progress(self._done, self._total)


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

    def __init__(self, progress: OnProgress, max_tokens: int) -> None:
        self._progress, self._most = progress, max_tokens
        self._done = 0
        self.of_model(0)

    def of_model(self, tokens: int) -> None:
        """Add tokens that the model has read."""
        self._done += tokens
        self._progress(self._done, self._most)

    def leaves_out(self, tokens: int) -> None:
        """Subtract tokens that will not be read."""
        self._most -= tokens

    def of_reread(self, done: int, total: int) -> None:
        """Take over the progress of what comes after reading: surrogates, then examples."""
        self._progress(self._done + done, self._done + total)
        if done == total:
            self._done += total
