"""Runs whose heads are known: patterns made by hand, scored and written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import headscope as hs

N = 30  # tokens of a repeat


def pattern(layers: int, heads: int, previous=(), induction=()) -> np.ndarray:
    """Heads that look one token back, or to what followed the earlier copy; the rest at the start."""
    a = np.zeros((layers, heads, 2 * N + 1, 2 * N + 1))
    place = np.arange(1, 2 * N + 1)
    second = np.arange(N + 1, 2 * N + 1)
    for layer, head in previous:
        a[layer, head, place, place - 1] = 0.9
    for layer, head in induction:
        a[layer, head, second, second - N + 1] = 0.8
    a[..., 0] += 1 - a.sum(-1)
    return a


@pytest.fixture(scope="session")
def make(tmp_path_factory) -> Callable[..., Path]:
    def make_run(name: str, layers: int, heads: int, *, types=("positional", "induction"), **which):
        folder = tmp_path_factory.mktemp("compared") / name
        tokens = [["<bos>", *[f"w{i}-{j}" for j in range(N)] * 2] for i in range(10)]
        hs.score_patterns(
            [pattern(layers, heads, **which)] * 10, None, tokens, types=list(types), name=name, out=folder
        )  # fmt: skip
        return folder

    return make_run


@pytest.fixture(scope="session")
def before(make) -> Path:
    return make("before", 2, 3, previous=[(0, 0)], induction=[(1, 2)])


@pytest.fixture(scope="session")
def after(make) -> Path:
    """L0H0 stays, L0H1 learned to look back, L1H2 forgot its induction."""
    return make("after", 2, 3, previous=[(0, 0), (0, 1)])


@pytest.fixture(scope="session")
def deep(make) -> Path:
    return make("deep", 4, 2, induction=[(3, 0), (3, 1)])
