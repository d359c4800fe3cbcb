"""Patterns of examples are read back as they were."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from headscope.errors import RunError
from headscope.measure.example import Example
from headscope.runs.patterns import read_examples, write_examples

CAUSAL = np.array([[1, 0, 0], [0.25, 0.75, 0], [0.5, 0, 0.5]], np.float16)
TWO_SIDED = np.array([[0.5, 0.5], [0.25, 0.75]], np.float16)


def example(pattern: np.ndarray) -> Example:
    tokens = tuple("abcdefgh"[: len(pattern)])
    return Example(
        1, 0, "induction/repeat", "best", 0.5, "t#0", tokens, 1, (0,), pattern,
        positions=tuple(range(len(pattern))), left_out=(), length=len(pattern),
    )  # fmt: skip


def written(folder: Path, *patterns: np.ndarray) -> dict[str, np.ndarray]:
    (folder / "patterns").mkdir()
    write_examples([example(pattern) for pattern in patterns], folder)
    return load_file(folder / "patterns" / "examples.safetensors")


def replaced(folder: Path, **stored: np.ndarray) -> None:
    """Put other patterns in place of those of the index, with their checksum."""
    file, index = (folder / "patterns" / f"examples.{kind}" for kind in ("safetensors", "json"))
    save_file({name.removeprefix("n"): pattern for name, pattern in stored.items()}, file)
    facts = json.loads(index.read_text())
    facts["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    index.write_text(json.dumps(facts))


@pytest.mark.parametrize("pattern", [CAUSAL, TWO_SIDED, CAUSAL[:2, :2]])
def test_a_pattern_is_read_back_as_it_was(tmp_path, pattern):
    written(tmp_path, pattern)
    (read,) = read_examples(tmp_path)
    assert np.array_equal(read.pattern, pattern)
    assert read.pattern.dtype == np.float16
    assert read.tokens == example(pattern).tokens


def test_zeros_that_every_causal_pattern_has_are_not_written(tmp_path):
    stored = written(tmp_path, CAUSAL, TWO_SIDED)
    assert stored["00000"].tolist() == [1, 0.25, 0.75, 0.5, 0, 0.5]
    assert stored["00001"].tolist() == TWO_SIDED.tolist()


@pytest.mark.parametrize("size", [3, 5, 7, 9])
def test_rows_of_another_number_of_tokens_are_refused(tmp_path, size):
    written(tmp_path, CAUSAL)
    replaced(tmp_path, n00000=np.zeros(size, np.float16))
    with pytest.raises(RunError, match="the examples are damaged"):
        read_examples(tmp_path)
