"""Lines on standard error above the bars of progress, which go away before and come back after."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any


def above_bars() -> AbstractContextManager[Any]:
    """Within it lines can be printed to standard error; bars go away before and come back after."""
    if "tqdm" not in sys.modules:
        return nullcontext()
    from tqdm import tqdm

    lines: AbstractContextManager[Any] = tqdm.external_write_mode(file=sys.stderr)
    return lines


def print_above_bars(line: str) -> None:
    """Print a line to standard error, wherever that goes."""
    with above_bars():
        print(line, file=sys.stderr, flush=True)
