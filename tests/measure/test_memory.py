"""Batches that do not fit into memory are read in halves, and give the same sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from headscope.errors import ModelError
from headscope.measure.batch_reader import measure
from headscope.measure.batches import Batch, in_memory
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.stimuli.repeat import repeat_windows
from headscope.stimuli.text import TextWindows

TEXT = "Alice was very tired. She looked at the old keys again. "
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
            if tokens.numel() > self.most and layer == self.engine.layers - 1:
                raise self.error
            on_layer(layer, rows)

        self.engine.run(tokens, tiles, watched, layers, on=on)


@pytest.fixture(scope="module")
def model(gpt2_folder):
    return load_model(str(gpt2_folder))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "alice.txt"
    path.write_text(TEXT * 120)
    return path


def tally_of(model, corpus, batch_tokens: int = 512):
    text = TextWindows([corpus], model.tokenizer, max_tokens=600, max_length=64, seed=0)
    repeats = repeat_windows(np.arange(1, 250), model.tokenizer, max_length=64, seed=0)
    return measure(model, text, repeats[::3], RELATIONS, seed=0, batch_tokens=batch_tokens)


@pytest.fixture(scope="module")
def small(model, corpus):
    return tally_of(model, corpus, batch_tokens=256)


@pytest.mark.parametrize("error", ERRORS, ids=["accelerator", "processor", "python"])
def test_halves_give_the_sums_of_smaller_batches(model, corpus, small, error):
    narrow = Narrow(model.engine, 256, error)
    found = tally_of(replace(model, engine=narrow), corpus)
    assert max(narrow.sizes) > 256
    for name, array in small.arrays().items():
        # the same windows in batches of other widths: float32's last bits
        np.testing.assert_allclose(found.arrays()[name], array, atol=2e-4, err_msg=name)
    assert found.queries.sum() == small.queries.sum() > 0
    assert found.profile.queries == small.profile.queries > 0


def test_halves_add_bit_for_bit_what_they_give_alone(model):
    """Windows of one length: a half is the very batch that a smaller size would make."""
    windows = repeat_windows(np.arange(1, 250), model.tokenizer, max_length=41, seed=0)[:32]
    assert {len(window) for window in windows} == {41}
    narrow = replace(model, engine=Narrow(model.engine, 4 * 41, MemoryError()))
    sums = [
        measure(each, [], windows, RELATIONS, seed=0, batch_tokens=size)
        for each, size in ((narrow, 16 * 41), (model, 4 * 41))
    ]
    assert narrow.engine.sizes.count(16 * 41) == 2
    for name, array in sums[0].arrays().items():
        assert np.array_equal(array, sums[1].arrays()[name]), name


def test_a_window_that_does_not_fit_alone_is_named(model, corpus):
    narrow = replace(model, engine=Narrow(model.engine, 10, MemoryError("no more")))
    with pytest.raises(
        ModelError, match=r"alice#\d+: a window of \d+ tokens does not fit into mem"
    ):
        tally_of(narrow, corpus)


def test_other_errors_are_not_taken_for_it(model, corpus):
    narrow = replace(model, engine=Narrow(model.engine, 10, RuntimeError("shapes do not match")))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        tally_of(narrow, corpus)


def test_halves_keep_blocks_and_profiled_rows(model, corpus):
    windows = list(TextWindows([corpus], model.tokenizer, max_tokens=500, max_length=64, seed=0))[
        :5
    ]
    batch = Batch(windows, np.arange(5), {1: 7, 4: 2})
    parts = in_memory(batch, lambda part: part if len(part.windows) < 3 else fail())
    assert [window for part in parts for window in part.windows] == windows
    assert [int(block) for part in parts for block in part.blocks] == [0, 1, 2, 3, 4]
    profiled = [(part.windows[row], at) for part in parts for row, at in part.profiled.items()]
    assert profiled == [(windows[1], 7), (windows[4], 2)]


def fail():
    raise MemoryError
