"""Losses under many changes: against one whole forward pass for each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscope.causal import text_losses as module
from headscope.causal.intervention import HeadsScaled
from headscope.causal.loss import loss
from headscope.causal.text_losses import text_losses
from headscope.measure.study_windows import text_windows
from headscope.models.load import load_model
from tests.models.every_layout import save_tiny


def masked(layer: int, *heads: int) -> HeadsScaled:
    factors = torch.ones(4)
    factors[list(heads)] = 0
    return HeadsScaled({layer: factors})


CHANGES = {"first layer": masked(0, 1, 2), "last layer": masked(1, 0)}


def test_losses_are_those_of_whole_forward_passes(model_folder, story, monkeypatch):
    monkeypatch.setattr(module, "batch_tokens_on", lambda device: 100)
    model = load_model(str(model_folder))
    windows = text_windows(model, story)
    tokens = sum(map(len, windows))
    assert tokens > 200
    passed: list[int] = []
    found = text_losses(model, windows, CHANGES, advance=passed.append)
    assert found.unchanged.nats == pytest.approx(loss(model, windows).nats)
    for name, change in CHANGES.items():
        expected = loss(model, windows, change)
        assert found.changed[name].nats == pytest.approx(expected.nats)
        assert found.changed[name].tokens.tolist() == expected.tokens.tolist()
    assert sum(passed) == tokens * 3


def test_a_short_window_is_not_padded_to_the_length_of_a_long_one(gpt2_folder, story):
    """The text is cut where a window has begun, so that the last window often has few tokens."""
    model = load_model(str(gpt2_folder))
    windows = text_windows(model, story, max_tokens=300)
    lengths = [len(window) for window in windows]
    assert min(lengths) < max(lengths) / 4
    cells: list[int] = []
    embedding = model.engine.network.get_input_embeddings()
    with embedding.register_forward_hook(lambda _, inputs, __: cells.append(inputs[0].numel())):
        text_losses(model, windows, {})
    assert sum(cells) < 1.5 * sum(lengths)


def test_a_base_is_part_of_every_change(gpt2_folder, story):
    model = load_model(str(gpt2_folder))
    windows = text_windows(model, story, max_tokens=300)
    found = text_losses(model, windows, CHANGES, base=masked(0, 3))
    assert found.unchanged.nats == pytest.approx(loss(model, windows, masked(0, 3)).nats)
    both = loss(model, windows, masked(0, 1, 2, 3))
    assert found.changed["first layer"].nats == pytest.approx(both.nats)


def test_the_loss_of_an_encoder_is_the_distance_of_its_states(tokenizer, tmp_path, story):
    """Without padding, window by window, in transformers' own network."""
    save_tiny("bert", tokenizer, tmp_path)
    model = load_model(str(tmp_path))
    windows = text_windows(model, story, max_tokens=200)
    change, base = without(model, 0), without(model, 1)
    found = text_losses(model, windows, {"change": change}, base=base)
    network = model.engine.network.base_model
    for number, window in enumerate(windows):
        tokens = torch.from_numpy(window.tokens)[None]
        with torch.no_grad():
            clean = network(tokens).last_hidden_state[0]
            with base.applied(model):
                with_base = network(tokens).last_hidden_state[0]
                with change.applied(model):
                    with_both = network(tokens).last_hidden_state[0]
        for losses, states in ((found.unchanged, with_base), (found.changed["change"], with_both)):
            distance = (states - clean).norm(dim=-1) / clean.norm(dim=-1)
            assert losses.nats[number] == pytest.approx(float(distance.sum()), abs=1e-4)
            assert losses.tokens[number] == len(window)
    assert np.all(found.changed["change"].nats > 0)


def without(model, head: int) -> HeadsScaled:
    factors = torch.ones(model.heads)
    factors[head] = 0
    return HeadsScaled({0: factors})
