"""A user's Python file with one function per head, which computes the head's pattern from tokens.

The file is the user's own code, and it is run.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.causal.head_set import Head
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError, first_line
from headscope.heads import head_name, parse_head
from headscope.paths import given_file, resolved

_MODULE = "headscope_programs"


@dataclass(frozen=True)
class Program:
    """A function that computes a head's pattern."""

    name: str
    """Name of the head."""
    file: Path
    function: Callable[[list[str]], Any]
    """From the tokens of a window, the first one included, to `[query key]` ≥ 0."""

    def pattern(self, window: Window) -> Float[ndarray, "query key"]:
        """The pattern over the keys that each query sees; a row sums to 1, or is 0 throughout.

        Raises:
            HeadscopeError: the function fails, or returns something else than such an array.
        """
        tokens = list(window.strings)
        with _reported(self.file, f"{self.name} fails"):
            result = np.asarray(self.function(tokens), dtype=float)
        size = len(tokens)
        is_valid = np.isfinite(result) & (result >= 0)
        if result.shape != (size, size) or not is_valid.all():
            raise HeadscopeError(
                f"{self.file!s:.200}: {self.name} returns an array of shape {result.shape} with "
                f"{(~is_valid).sum()} values that are negative or not finite; it should return "
                f"shape ({size}, {size}), query by key, and values ≥ 0"
            )
        visible = result * ~window.attention_kind.hidden(size)
        mass = visible.sum(-1, keepdims=True)
        rows: ndarray = np.divide(visible, mass, out=np.zeros_like(visible), where=mass > 0)
        return rows


def read_programs(path: Path) -> dict[Head, Program]:
    """Run a Python file, and return its functions whose names are heads, such as `L5H1`.

    Modules beside the file can be imported by it.

    Raises:
        HeadscopeError: the file cannot be read or run, or has no such function.
    """
    names = _run(path)
    programs: dict[Head, Program] = {}
    for name, value in names.items():
        if not callable(value):
            continue
        try:
            head = parse_head(name)
        except HeadscopeError:
            continue  # a helper of the programs
        programs[head] = Program(name=head_name(*head), file=path, function=value)
    if not programs:
        raise HeadscopeError(
            f"{path!s:.200}: no function for a head; name one as its head, such as L5H1"
        )
    return programs


def _run(path: Path) -> Mapping[str, Any]:
    """The names that a Python file defines."""
    given_file(path, "for programs a Python file with a function per head")  # refuses a pipe
    folder = str(resolved(path).parent)
    sys.path.insert(0, folder)
    try:
        with _reported(path, "this file of programs cannot be run"):
            return run_path(str(path), run_name=_MODULE)
    finally:
        sys.path.remove(folder)


@contextmanager
def _reported(path: Path, what: str) -> Iterator[None]:
    """Turn an error of the user's code into one with its line."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit would end the command as if it had done its work
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        line = f", line {lines[-1]}" if lines else ""
        raise HeadscopeError(
            f"{path!s:.200}{line}: {what}: {type(error).__name__}: {first_line(error):.200}"
        ) from error
