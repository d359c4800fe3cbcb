"""Progress of long work, for the command line and Python alike: a bar, and counts of steps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from headscope.options import Flag, OnMessage

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is in all."""

LOADING = "loading the model"
QUIET_SECONDS = 2.0
"""Seconds before the bar of work without a model appears."""
REFRESHES = 4
"""Pictures of a bar a second."""
LONG_SECONDS = 20.0
"""Seconds from which on the cost of work is announced."""
LAP_SECONDS = 1.0
"""Seconds of work, at least, by which the whole is estimated."""
LAPS = 2
"""Laps that may show that work is long: what a stopped run has done already passes in the first."""

_bars_wanted = ContextVar("bars_wanted", default=True)
_shown_bar: ContextVar[RichProgress | None] = ContextVar("shown_bar", default=None)
_on_cost: ContextVar[OnMessage | None] = ContextVar("on_cost", default=None)

Progress = Annotated[
    bool | OnProgress,
    Flag(""),
    Field(
        description="True for a progress bar on a terminal or in a notebook; False for none; or a "
        "function that is called with the amount done and the whole amount."
    ),
]


@contextmanager
def progress_bar(
    progress: Progress,
    doing: str = "reading attention",
    *,
    unit: str = "tokens",
    loads: bool = True,
    announced: bool = True,
) -> Iterator[OnProgress]:
    """Callback of work as it goes on, as its caller wants to see it; the bar goes when it ends.

    Lines on standard error stand above the bar. No bar is drawn where nobody sees it.

    Args:
        progress: the caller's choice.
        doing: the words before the bar.
        unit: what is counted.
        loads: whether a model is loaded first, which the bar says.
        announced: within `announced_costs` the cost of long work is announced; False for work that
            announces it itself.
    """
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress:
        # a user who wants no bar wants none of the libraries that headscope calls either
        token = _bars_wanted.set(False)
        try:
            yield silent
        finally:
            _bars_wanted.reset(token)
        return
    on_cost = _on_cost.get() if announced else None
    # a bar is drawn where somebody sees it; costs are announced in a pipe too
    optional_bar = _Bar(doing, unit, loads=loads) if person_waits() else nullcontext()
    with optional_bar as bar:
        update = silent if bar is None else bar.update
        yield update if on_cost is None else Forecast(update, on_cost, unit).update


def person_waits() -> bool:
    """True if somebody sees a bar: standard error is a terminal, or this a notebook's kernel."""
    if sys.stderr is not None and sys.stderr.isatty():
        return True
    return in_notebook() and find_spec("ipywidgets") is not None


def in_notebook() -> bool:
    """True in a notebook's kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "ipykernel.zmqshell" in sys.modules and shell is not None


class _Bar:
    """A bar by rich: while a model is loaded a line that says so, then what is done of all."""

    def __init__(self, doing: str, unit: str, *, loads: bool) -> None:
        self._doing = doing
        self._bar = _drawn_bar(unit)
        self._task = self._bar.add_task(LOADING if loads else doing, total=None)
        self._appears = time.monotonic() + (0 if loads else QUIET_SECONDS)

    def __enter__(self) -> _Bar:
        self._outer = _shown_bar.set(self._bar)
        self._show_if_due()
        return self

    def __exit__(self, *error: object) -> None:
        _shown_bar.reset(self._outer)
        self._bar.stop()

    def update(self, done: int, total: int) -> None:
        """Show the amount done and the whole amount."""
        is_first = self._bar.tasks[self._task].total is None
        # the first picture comes at once: else the bar would say longer that the model is loaded
        self._bar.update(
            self._task, description=self._doing, completed=done, total=total, refresh=is_first
        )
        self._show_if_due()

    def _show_if_due(self) -> None:
        if not self._bar.live.is_started and time.monotonic() >= self._appears:
            self._bar.start()


def _drawn_bar(unit: str) -> RichProgress:
    # most work is done where nobody sees a bar, and rich is slow to import
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Amount(ProgressColumn):
        """Share that is done, and the amount in a second."""

        def render(self, task: Task) -> Text:
            if task.total is None:
                return Text()
            amount = f"{task.completed:,.0f} of {task.total:,.0f}"
            if task.speed is None:
                return Text(f"{amount} {unit}")
            return Text(f"{amount}, {task.speed:,.0f} {unit}/s")

    return Progress(
        TextColumn("{task.description}:", markup=False),
        TaskProgressColumn(),
        BarColumn(),
        Amount(),
        TimeRemainingColumn(),
        # the stream of now: while a library loads a model, standard error is another one
        console=Console(file=_Lasting(sys.stderr)),  # type: ignore[arg-type]
        transient=True,
        redirect_stdout=False,
        refresh_per_second=REFRESHES,
    )


class _Lasting:
    """A stream that outlasts its terminal: work goes on when its window is closed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, as far as that is possible."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, as far as that is possible."""
        with suppress(OSError, ValueError):
            self._stream.flush()


@contextmanager
def announced_costs(on_cost: OnMessage) -> Iterator[None]:
    """Within it the cost of work that turns out to be long is announced, if the user wants bars."""
    token = _on_cost.set(on_cost)
    try:
        yield
    finally:
        _on_cost.reset(token)


class Forecast:
    """Announces once, after the first steps of long work, what all of it costs.

    Args:
        on_progress: is told what this is told.
        on_cost: called with a line if the work takes `LONG_SECONDS` or more.
        unit: what is counted.
        clock: seconds.
    """

    def __init__(
        self,
        on_progress: OnProgress,
        on_cost: OnMessage,
        unit: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_progress, self._on_cost, self._unit = on_progress, on_cost, unit
        self._clock = clock
        self._lap: tuple[float, int] | None = None
        """When the lap began, and how much was done then."""
        self._laps_left = LAPS
        self._whole = 0

    def update(self, done: int, total: int) -> None:
        """Show the amount done and the whole amount, and estimate the cost at the end of a lap."""
        self._on_progress(done, total)
        if not self._laps_left:
            return
        # the first lap begins with what a stopped run had done already
        now = self._clock()
        if self._lap is None:
            self._lap, self._whole = (now, done), total
        began, done_before = self._lap
        # a larger whole: other work has begun, whose steps take another time
        if total > self._whole:
            self._laps_left = 0
        elif now - began >= LAP_SECONDS and done > done_before:
            seconds_each = (now - began) / (done - done_before)
            amount = total - done_before
            self._lap, self._laps_left = (now, done), self._laps_left - 1
            if seconds_each * amount >= LONG_SECONDS:
                self._laps_left = 0
                self._on_cost(cost(seconds_each * amount, f"{amount:,} {self._unit}"))


def cost(seconds: float, amount: str = "") -> str:
    """Time that work takes, and the memory taken so far, in words.

    Memory may grow: a run of SmolLM2 takes 1.7 GB when this is said, and 2.0 GB at its end.

    Args:
        seconds: that the work takes.
        amount: of what, such as `40,000 tokens`.
    """
    memory = peak_memory()
    of_amount = f" for {amount}" if amount else ""
    of_memory = f" and at least {memory}" if memory else ""
    return f"about {duration(seconds)}{of_amount}{of_memory}"


def duration(seconds: float) -> str:
    """Seconds in words, as precise as an estimate is.

    >>> [duration(seconds) for seconds in (0.2, 7.4, 38, 95, 200, 9_000)]
    ['1 second', '7 seconds', '40 seconds', '2 minutes', '3 minutes', '2.5 hours']
    """
    if seconds < 9.5:
        amount, unit = max(1, round(seconds)), "second"
    elif seconds < 85:
        amount, unit = 10 * round(seconds / 10), "second"
    elif seconds < 90 * 60:
        amount, unit = max(1, round(seconds / 60)), "minute"
    else:
        return f"{seconds / 3600:,.1f} hours"
    return f"{amount} {unit}{'s' if amount > 1 else ''}"


def peak_memory() -> str:
    """Most memory that was taken so far, in words: of GPUs if they are used, else of the process.

    Empty where the system does not count it.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        devices = range(torch.cuda.device_count())
        on_devices = sum(map(torch.cuda.max_memory_allocated, devices))
        return f"{on_devices / 1e9:.1f} GB on the GPU"
    if sys.platform == "win32":
        return ""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # in kilobytes, but on a Mac in bytes
    unit = 1 if sys.platform == "darwin" else 1024
    return f"{peak * unit / 1e9:.1f} GB"


@contextmanager
def other_bars() -> Iterator[bool]:
    """Within it another library draws its own bars, and headscope's is off the screen.

    Yields:
        False if the user wants no bars.
    """
    # two live displays on one terminal would overwrite each other
    bar = _shown_bar.get()
    was_shown = bar is not None and bar.live.is_started
    if bar is not None and was_shown:
        bar.stop()
    try:
        yield _bars_wanted.get()
    finally:
        if bar is not None and was_shown:
            bar.start()


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
        self._on_progress(min(self._done, self._total), self._total)

    def finish(self) -> None:
        """Take the steps that were not needed for done."""
        self.advance(self._total - self._done)


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
