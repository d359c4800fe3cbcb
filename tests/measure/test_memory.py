"""Batches that do not fit into memory are read in halves, and give the same sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from headscope.errors import ModelError
from headscope.measure.batch_reader import BatchReader
from headscope.measure.reading import read, sum_cells
from headscope.measure.sums import Sums
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.stimuli.repeat import repeat_windows

RELATIONS = relations_of(["induction", "positional", "delimiter"])
CPU = RuntimeError(
    "[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
)
ERRORS = [torch.OutOfMemoryError("CUDA out of memory."), CPU, MemoryError()]


class Narrow:
    """An engine that runs out of memory, at its last layer, on more than so many tokens."""

    def __init__(self, engine, most: int, error: Exception) -> None:
        self.engine, self.most, self.error = engine, most, error
        self.sizes: list[int] = []

    def __getattr__(self, name: str):
        return getattr(self.engine, name)

    def run(self, tokens, tiles, on_layer, layers=None, *, on=False) -> None:
        self.sizes.append(tokens.numel())

        def watched(layer, rows) -> None:
            if tokens.numel() > self.most and layer == self.engine.attention_layers[-1]:
                raise self.error
            on_layer(layer, rows)

        self.engine.run(tokens, tiles, watched, layers, on=on)


@pytest.fixture(scope="module")
def model(gpt2_folder):
    return load_model(str(gpt2_folder))


@pytest.fixture(scope="module")
def windows(model):
    """Windows of one length: a half is the very batch that a smaller size would make."""
    repeats = repeat_windows(np.arange(1, 250), model.tokenizer, max_length=41, seed=0)[:16]
    assert {len(window) for window in repeats} == {41}
    return repeats


@pytest.fixture(scope="module")
def small(model, windows):
    return sum_cells(model, [], windows, RELATIONS, seed=0, batch_tokens=2 * 41)


@pytest.mark.parametrize("error", ERRORS, ids=["accelerator", "processor", "python"])
def test_halves_add_bit_for_bit_what_they_give_alone(model, windows, small, error):
    narrow = replace(model, engine=Narrow(model.engine, 2 * 41, error))
    found = sum_cells(narrow, [], windows, RELATIONS, seed=0, batch_tokens=8 * 41)
    assert narrow.engine.sizes.count(8 * 41) == 2
    for name, array in small.arrays().items():
        assert np.array_equal(found.arrays()[name], array), name


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (MemoryError("no more"), ModelError, r"repeat#\d+:.*\b41\b"),
        (RuntimeError("shapes"), RuntimeError, "shapes"),
    ],
)
def test_a_window_that_does_not_fit_alone_is_named(model, windows, error, raised, message):
    narrow = replace(model, engine=Narrow(model.engine, 10, error))
    with pytest.raises(raised, match=message):
        sum_cells(narrow, [], windows, RELATIONS, seed=0, batch_tokens=512)


def test_batches_that_were_read_in_halves_are_counted(model, windows):
    narrow = replace(model, engine=Narrow(model.engine, 4 * 41, MemoryError()))
    sums = Sums.empty(narrow, RELATIONS)
    read(BatchReader(narrow, RELATIONS, 0, 8 * 41), [], windows, sums)
    assert sums.halved == len(windows) / 8
