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
    """Tokens per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} tokens/s", style="progress.data.speed")


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A function of (tokens done, tokens in all) that draws a bar; nothing is drawn when quiet."""
    if quiet:
        yield lambda done, total: None
        return
    columns = [
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        _Rate(), TimeRemainingColumn(),
    ]  # fmt: skip
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("loading the model", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, description="reading attention", completed=done, total=total)

        yield advance
