"""Layers that do not see everything before a token: their masks are read as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface

import headscope as hs
from headscope.errors import ModelError
from headscope.models.engines import capture
from headscope.models.engines.engine import Entries, QueryRows, Tile, stream_patterns
from headscope.models.layout.dimensions import read_dimensions
from headscope.models.load import load_model
from tests.models.every_layout import own_attention, save_tiny
from tests.models.tiny import CONTEXT, WINDOW, tiny_config

LAYOUTS = ("mistral", "gemma3_text", "llama4_text", "gpt_neo")
"""A window, one in some layers, chunks, and a mask that the attention builds itself."""


@pytest.fixture(params=LAYOUTS)
def folder(request, tokenizer, tmp_path):
    save_tiny(request.param, tokenizer, tmp_path)
    return tmp_path


def patterns(model, tokens) -> list[torch.Tensor]:
    seen: list[torch.Tensor] = []
    stream_patterns(model.engine, tokens, lambda _, pattern: seen.append(pattern.clone()))
    return seen


@pytest.mark.parametrize("length", [WINDOW, WINDOW + 1, CONTEXT])
def test_windows_are_those_of_the_models_own_attention_whatever_is_read(folder, length):
    assert WINDOW > 48  # that of the text on which an engine is checked when it is loaded
    model = load_model(str(folder), longest=WINDOW)
    assert model.engine.name == "fused"
    assert model.notes == ()
    tokens = torch.arange(length)[None]
    own = own_attention(folder, tokens)
    hidden = [float(each[0, :, -1, 0].max()) == 0 for each in own]
    assert any(hidden) == (length > WINDOW)  # whether the first token is out of reach of the last
    for pattern, theirs in zip(patterns(model, tokens), own, strict=True):
        assert torch.allclose(pattern, theirs, atol=1e-5)


def test_chosen_rows_and_cells_are_those_of_whole_patterns(folder):
    model, tokens = load_model(str(folder)), torch.arange(2 * CONTEXT).view(2, -1) % 300
    queries, keys = np.array([3, 60, 95, 95]), np.array([1, 2, 0, 90])
    looks = [
        Tile(slice(1, 2), slice(40, 70)),
        QueryRows(1, np.array([5, 57, 95])),
        Entries(1, queries, keys),
    ]
    found = []
    model.engine.run(tokens, looks, lambda _, rows: found.append([each.exp() for each in rows]))
    for (tile, picked, cells), own in zip(found, patterns(model, tokens), strict=True):
        assert torch.allclose(tile, own[1:2, :, 40:70, :70], atol=1e-6)
        assert torch.allclose(picked, own[1:2, :, [5, 57, 95]], atol=1e-6)
        assert torch.allclose(cells, own[1][:, queries, keys].T, atol=1e-6)


def test_a_window_that_no_mask_tells_of_is_not_believed():
    stated = read_dimensions("m", tiny_config("mistral"))
    stated.check_reach(WINDOW)
    stated.check_reach(CONTEXT, {WINDOW})
    for known in ((), {WINDOW + 1}):
        with pytest.raises(ModelError, match=f"layers that reach {WINDOW} tokens back, and"):
            stated.check_reach(WINDOW + 1, known)


def test_a_run_of_such_a_model_ends(tokenizer, tmp_path):
    save_tiny("mistral", tokenizer, tmp_path)
    text = tmp_path / "long.txt"
    text.write_text("the old keys were in the house and she told them that " * 40)
    run = hs.classify(str(tmp_path), text, max_tokens=300, max_length=CONTEXT, types=["positional"])
    assert run.info["engine"] == "fused"
    # far keys are out of reach, so that no query attends beyond the window
    assert (run.heads["mean_distance"] < WINDOW).all()


def test_every_function_that_models_attend_by_gets_masks():
    """One without would be handed none, and windows would be gone without a word."""
    names = [name for name in AttentionInterface().valid_keys() if name.startswith("headscope")]
    assert capture.NAME in names
    for name in names:
        assert AttentionMaskInterface()[name] is capture.mask_of
