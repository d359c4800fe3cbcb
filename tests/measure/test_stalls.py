"""Reading a layer makes no device wait: nothing is fetched from it or copied to it layer by layer.

There is no second device in the tests. What would make one wait is counted where it is called:
sizes that depend on values, numbers that go back to Python, and arrays that become tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import headscope as hs
from headscope.measure import sparse
from headscope.measure.batch_reader import BatchReader
from headscope.measure.batches import TextBlocks, batches
from headscope.measure.example_reader import Sample
from headscope.measure.fit_baselines import fit_baselines
from headscope.measure.surrogate_rows import rows_of_model
from headscope.measure.tally import Tally
from headscope.models.load import open_model
from headscope.relations import all_stimuli, relations_of
from headscope.relations.effects import sum_names
from headscope.stimuli.stimulus import StimulusConfig

TYPES = ["positional", "lexical", "syntactic", "induction"]
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "item")
"""Operators whose result, or its size, the processor has to know."""


class Waits(TorchDispatchMode):
    """Counts operators that make a device wait."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        indices = args[1] if name.startswith(("index", "index_put")) and len(args) > 1 else ()
        if name in WAITING or any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool
            for index in (indices if isinstance(indices, list | tuple) else ())
        ):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def counts(monkeypatch) -> Counter[str]:
    """Calls that would copy between host and device or wait, while a batch is read."""
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        own: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            counted[name] += 1
            return own(*args, **options)

        monkeypatch.setattr(owner, name, call)

    for owner, name in (
        (torch, "from_numpy"),
        (torch, "tensor"),
        (torch.Tensor, "cpu"),
        (torch.Tensor, "numpy"),
        (torch.Tensor, "tolist"),
        (torch.Tensor, "item"),
    ):
        count(owner, name)
    monkeypatch.setattr(sparse, "_waits", lambda device: True)
    return counted


def network(kind: str, layers: int) -> Any:
    torch.manual_seed(0)
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(vocab_size=401, n_embd=32, n_layer=layers, n_head=4, n_positions=1024)
        )
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=401,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
        )
    )


def read_counts(
    kind: str, layers: int, tokenizer: Any, counts: Counter[str], length: int
) -> Counter[str]:
    """What is counted while text and repeats are read and added up, patterns kept, and rows of
    heads read again."""
    model = open_model((network(kind, layers), tokenizer))
    windows = hs.windows("gum", model.tokenizer, max_length=length, max_tokens=3 * length)
    # with hard and easy queries, which have a reader of their own
    relations = relations_of(TYPES)
    summed = fit_baselines(windows, relations).summed(relations)
    dealt = TextBlocks().deal(windows)
    config = StimulusConfig(model.tokenizer, model.vocabulary_size, 96, 0, 2, ())
    repeats = all_stimuli()["repeat"].windows(config)[:2]
    reader = BatchReader(model, summed, seed=0)
    tally = Tally.zeros(sum_names(summed), model.attention_layers, model.heads)
    # the patterns of a short window of the sample, which runs alone, are kept
    sample = Sample(1, seed=0)
    sample.add(windows[0])
    found: Counter[str] = Counter()
    parts = [dealt.take([0]), dealt.take([1, 2]), TextBlocks().deal(repeats)]
    for batch in (batch for part in parts for batch in batches(part, tokens=1_000)):
        prepared = reader.prepare(batch)
        counts.clear()
        with Waits(counts):
            done = reader.read(prepared, sample)
            for one in done.readers:
                one.add_to(tally)
        found += counts
    assert tally.queries.sum() > 100
    assert np.isfinite(tally.target).all()
    # two heads of every layer for surrogates
    heads = [(layer, head) for layer in range(layers) for head in (0, 2)]
    tokens = {number: np.arange(1, 40) for number in range(3)}
    counts.clear()
    with Waits(counts):
        rows = list(rows_of_model(model, windows[:3], tokens, heads))
    assert {slot for of_window in rows for slot in of_window.slots} == {*range(len(heads))}
    return found + counts


@pytest.mark.parametrize("length", [96, 600])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_no_layer_makes_a_device_wait(kind, length, tokenizer, counts):
    two = read_counts(kind, 2, tokenizer, counts, length)
    five = read_counts(kind, 5, tokenizer, counts, length)
    assert two
    assert five == two
