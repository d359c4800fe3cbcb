"""Patterns of examples are read back as they were."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load, save

from headscope.measure.example import Example
from headscope.runs.patterns import example_files, read_examples

CAUSAL = np.array([[1, 0, 0], [0.25, 0.75, 0], [0.5, 0, 0.5]], np.float16)
TWO_SIDED = np.array([[0.5, 0.5], [0.25, 0.75]], np.float16)


def files(*patterns: np.ndarray) -> tuple[bytes, bytes]:
    examples = [
        Example(
            1, 0, "induction/repeat", "best", 0.5, "t#0", tuple("abcdefgh"[: len(pattern)]), 1, (0,),
            pattern, positions=tuple(range(len(pattern))), left_out=(), length=len(pattern),
        )
        for pattern in patterns
    ]  # fmt: skip
    stored, index = example_files(examples)
    return stored, index.encode()


@pytest.mark.parametrize("pattern", [CAUSAL, TWO_SIDED, CAUSAL[:2, :2]])
def test_a_pattern_is_read_back_as_it_was(pattern):
    (read,) = read_examples(*files(pattern))
    assert np.array_equal(read.pattern, pattern)
    assert read.pattern.dtype == np.float16
    assert read.tokens == tuple("abc"[: len(pattern)])


def test_zeros_that_every_causal_pattern_has_are_not_written():
    stored = load(files(CAUSAL, TWO_SIDED)[0])
    assert stored["00000"].tolist() == [1, 0.25, 0.75, 0.5, 0, 0.5]
    assert stored["00001"].tolist() == TWO_SIDED.tolist()


@pytest.mark.parametrize("size", [3, 5, 7, 9])
def test_rows_of_another_number_of_tokens_are_refused(size):
    with pytest.raises(ValueError, match="shape mismatch"):
        read_examples(save({"00000": np.zeros(size, np.float16)}), files(CAUSAL)[1])
