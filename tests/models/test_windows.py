"""Layers that do not see everything before a token: their masks are read as they are."""

from __future__ import annotations

import pytest
from transformers import AttentionInterface, AttentionMaskInterface

import headscope as hs
from headscope.errors import ModelError
from headscope.models.engines import capture
from headscope.models.layout.dimensions import read_dimensions
from tests.models.every_layout import save_tiny
from tests.models.tiny import CONTEXT, WINDOW, tiny_config


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
