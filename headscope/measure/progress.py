"""Progress of long work, for the command line and Python alike: a bar."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any

from pydantic import Field

from headscope.printing import no_other_bars

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is in all."""

COLUMNS, ROWS = 80, 24
LOADING = "loading the model"
QUIET_SECONDS = 2.0
"""How long work that loads no model goes on before its bar appears."""


Progress = Annotated[
    bool | OnProgress,
    Field(
        description="True for a progress bar on a terminal or in a notebook, False for none, or a "
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
) -> Iterator[OnProgress]:
    """Callback of work as it goes on, as its caller wants to see it; the bar goes when it ends.

    Args:
        progress: what the caller said.
        doing: the words before the bar.
        unit: what is counted.
        loads: whether a model is loaded first, which the bar says.
    """
    if not isinstance(progress, bool):
        yield progress
        return
    if not progress or not person_waits():
        with nullcontext() if progress else no_other_bars():
            yield silent
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
    """True where somebody sees a bar: standard error is a terminal, or this a notebook's kernel."""
    return (sys.stderr is not None and sys.stderr.isatty()) or in_notebook()


def in_notebook() -> bool:
    """True in a notebook's kernel, by the rule of `tqdm.auto`."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "ipykernel.zmqshell" in sys.modules and shell is not None


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
