"""A small run with examples whose tokens are evil, its page, and the page with feature models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from headscope.measure.example import Example
from headscope.views.report import report_html
from tests.browser import Browser, browser_session
from tests.helpers.hand_built import run_of

TOKENS = (
    "<bos>",
    "</script><script>alert(1)</script>",
    "\"'<b>&amp;",
    "\u202eabc\u200f",
    "\ufffd",
    "\ud83d",
    "a\nb",
    " $x$",
    "end",
)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all files of this folder, none of which needs an event loop of its own."""
    with browser_session() as started:
        yield started


@pytest.fixture(scope="session")
def run():
    """2 layers × 3 heads on repeats: L0H0 is a previous-token head, L1H2 an induction head."""
    made = run_of("PSS", "SEI", name="six heads </title><b>")
    size = len(TOKENS)
    pattern = (np.tril(np.ones((size, size))) / np.arange(1, size + 1)[:, None]).astype(np.float16)
    kept = Example(
        layer=1,
        head=2,
        relation="induction/repeat",
        kind="best",
        mass=0.8,
        window="repeat#0",
        tokens=TOKENS,
        query=size - 1,
        targets=(1, 3),
        pattern=pattern,
        positions=(0, *range(40, 46), 90, 91),
        left_out=(0.25, 0.001),
        length=120,
        more_targets=2,
    )
    ordinary = Example(
        layer=1,
        head=2,
        relation="",
        kind="ordinary",
        mass=float("nan"),
        window="text#0",
        tokens=TOKENS,
        query=-1,
        targets=(),
        pattern=pattern,
        positions=tuple(range(size)),
        left_out=(),
        length=120,
    )
    examples = [replace(kept, kind=kind) for kind in ("best", "decile 2", "decile 10")]
    return replace(made, examples=[*examples, ordinary])


@pytest.fixture(scope="session")
def page(run):
    return report_html(run)


@pytest.fixture(scope="session")
def explained(run):
    """The page of a run after `explain`: a row of `explained` and `feature_model` per head."""
    shares = [0.91, 0.5, -0.2, 1.0, 0.07, 0.349]
    heads = run.heads.assign(explained=shares, feature_model=[f"rule {i} <b>" for i in range(6)])
    feature_models = pd.DataFrame([(0, 0, 0.91)], columns=["layer", "head", "explained"])
    return report_html(replace(run, heads=heads, feature_models=feature_models))
