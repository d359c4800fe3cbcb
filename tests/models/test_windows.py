"""Layers that do not see everything before a token: the window that is read decides the engine."""

from __future__ import annotations

import pytest
import torch

import headscope as hs
from headscope.errors import ModelError
from headscope.models.engines import fused
from headscope.models.engines.engine import stream_patterns
from headscope.models.load import load_model
from tests.models.every_layout import own_attention, save_tiny
from tests.models.tiny import CONTEXT, WINDOW

LAYOUTS = ("mistral", "gemma3_text", "llama4_text", "olmo3")


@pytest.fixture(params=LAYOUTS)
def folder(request, tokenizer, tmp_path):
    save_tiny(request.param, tokenizer, tmp_path)
    return tmp_path


def patterns(model, tokens) -> list[torch.Tensor]:
    seen: list[torch.Tensor] = []
    stream_patterns(model.engine, tokens, lambda _, pattern: seen.append(pattern.clone()))
    return seen


def test_a_window_longer_than_the_load_check_and_shorter_than_what_is_read_falls_back_to_lens(
    folder,
):
    assert WINDOW > 48
    model = load_model(str(folder), longest=WINDOW + 1)
    assert model.engine.name == "lens"
    assert (
        f"layers that reach {WINDOW} tokens back, and windows of up to {WINDOW + 1}"
        in (model.notes[0])
    )
    tokens = torch.arange(CONTEXT)[None]
    own = own_attention(folder, tokens)
    assert own[0][0, 0, -1, 0] == 0  # the first token is out of reach of the last
    for pattern, theirs in zip(patterns(model, tokens), own, strict=True):
        assert torch.allclose(pattern, theirs, atol=1e-5)


def test_a_window_that_holds_all_that_is_read_needs_no_other_engine(folder):
    model = load_model(str(folder), longest=WINDOW)
    assert model.engine.name == "fused"
    tokens = torch.arange(WINDOW)[None]
    for pattern, theirs in zip(patterns(model, tokens), own_attention(folder, tokens), strict=True):
        assert torch.allclose(pattern, theirs, atol=1e-5)


def test_more_tokens_than_were_asked_for_end_in_an_error_and_not_in_another_pattern(folder):
    """Llama 4's chunks are no argument of its attention: only the mask tells of them."""
    model = load_model(str(folder), longest=WINDOW)
    with pytest.raises(ModelError, match="the fused engine does not know"):
        patterns(model, torch.arange(CONTEXT)[None])


def test_a_run_of_such_a_model_ends_by_either_engine(tokenizer, tmp_path, keys_file):
    save_tiny("mistral", tokenizer, tmp_path)
    text = tmp_path / "long.txt"
    text.write_text("the old keys were in the house and she told them that " * 40)
    for length, engine in ((CONTEXT, "lens"), (WINDOW, "fused")):
        run = hs.classify(
            str(tmp_path), text, max_tokens=300, max_length=length, types=["positional"]
        )
        assert run.info["engine"] == engine


def test_the_mask_of_a_plain_causal_model_is_none():
    """So that the net that catches windows costs a plain model nothing."""
    from transformers import AttentionMaskInterface

    assert fused.NAME in AttentionMaskInterface()
