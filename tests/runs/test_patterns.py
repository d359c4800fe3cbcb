"""Patterns of examples are read back as they were."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.measure.example import Example
from headscope.runs.patterns import example_files, read_examples

CAUSAL = np.array([[1, 0, 0], [0.25, 0.75, 0], [0.5, 0, 0.5]], np.float16)
TWO_SIDED = np.array([[0.5, 0.5], [0.25, 0.75]], np.float16)


def files(*patterns: np.ndarray) -> tuple[bytes, bytes]:
    examples = [
        Example(
            layer=1,
            head=0,
            relation="induction/repeat",
            kind="best",
            mass=0.5,
            window="t#0",
            tokens=tuple("abcdefgh"[: len(pattern)]),
            query=1,
            targets=(0,),
            pattern=pattern,
            positions=tuple(range(len(pattern))),
            left_out=(),
            length=len(pattern),
        )
        for pattern in patterns
    ]
    stored, index = example_files(examples)
    return stored, index.encode()


@pytest.mark.parametrize("pattern", [CAUSAL, TWO_SIDED, CAUSAL[:2, :2]])
def test_a_pattern_is_read_back_as_it_was(pattern):
    (read,) = read_examples(*files(pattern))
    assert np.array_equal(read.pattern, pattern)
    assert read.pattern.dtype == np.float16
    assert read.tokens == tuple("abc"[: len(pattern)])
