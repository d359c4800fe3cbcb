"""The loss on text: against the model's own logits, window by window."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.measure.study_windows import text_windows
from headscope.models.load import load_model
from headscope.models.loss import loss
from headscope.studies.collapse import collapse
from tests.helpers.models import edit_config


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(str(model_folder))


@pytest.mark.parametrize("batch_tokens", [1, 40, None])
def test_losses_are_those_of_transformers_in_the_order_of_the_windows(
    model, model_folder, batch_tokens
):
    rng = np.random.default_rng(0)
    windows = [Window(str(n), rng.integers(1, 90, n), ("a",) * n) for n in (9, 23, 14)]
    network = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager").eval()
    with torch.no_grad():
        ids = [torch.from_numpy(window.tokens)[None] for window in windows]
        expected = [float(network(each, labels=each).loss) for each in ids]
    found = loss(model, windows, batch_tokens=batch_tokens)
    assert found.tokens.tolist() == [8, 22, 13]
    assert found.nats / found.tokens == pytest.approx(expected, rel=1e-5)
    assert found.mean == pytest.approx(found.nats.sum() / 43, rel=1e-5)


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
