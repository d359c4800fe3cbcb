"""The progress bar of long commands: tokens done, tokens per second, time left; on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Rate(ProgressColumn):
    """Tokens, or whatever is counted, per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        said = "" if speed is None else f"{speed:,.0f} {self.unit}/s"
        return Text(said, style="progress.data.speed")


@contextmanager
def progress_bar(
    *, quiet: bool, doing: str = "reading attention", unit: str = "tokens"
) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, in all) that draws a bar; nothing is drawn when quiet."""
    if quiet:
        yield lambda done, total: None
        return
    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("loading the model", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, description=doing, completed=done, total=total)

        yield advance
