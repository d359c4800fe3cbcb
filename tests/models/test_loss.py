"""The loss on text: against the model's own logits, window by window."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.errors import HeadscopeError
from headscope.measure.study_windows import text_windows
from headscope.models.load import load_model
from headscope.models.loss import loss
from headscope.studies.collapse import collapse
from tests.helpers.models import edit_config


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(str(model_folder))


def test_the_loss_is_that_of_the_models_own_logits_window_by_window(model, model_folder, story):
    windows = text_windows(model, story)
    own = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager").eval()
    expected = []
    with torch.no_grad():
        for window in windows:
            tokens = torch.from_numpy(window.tokens)[None]
            expected.append(float(own(tokens, labels=tokens).loss) * (len(window) - 1))
    found = loss(model, windows)
    assert len({len(window) for window in windows}) > 1
    assert found.nats.tolist() == pytest.approx(expected, rel=1e-5)
    assert found.mean == pytest.approx(sum(expected) / found.tokens.sum(), rel=1e-5)


def test_chunks_of_logits_change_nothing(model, story, monkeypatch):
    from headscope.models import loss as module

    windows = text_windows(model, story)
    whole = loss(model, windows)
    monkeypatch.setattr(module, "LOGIT_CELLS", 7 * model.vocabulary_size)
    parts = loss(model, windows)
    assert parts.nats.tolist() == pytest.approx(whole.nats.tolist(), rel=1e-6)


def test_a_model_that_scales_its_logits_is_refused(tokenizer, tmp_path):
    from transformers import GraniteConfig, GraniteForCausalLM

    torch.manual_seed(0)
    config = GraniteConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        vocab_size=len(tokenizer), max_position_embeddings=64, logits_scaling=4.0,
        initializer_range=0.4, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    GraniteForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(HeadscopeError, match="its logits are not its last residual stream"):
        collapse(str(tmp_path))
    edit_config(tmp_path, logits_scaling=1.0)
    assert len(collapse(str(tmp_path), max_tokens=100).table) == 7
