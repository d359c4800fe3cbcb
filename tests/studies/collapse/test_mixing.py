"""W_O's mixing: the identity put there by hand gives the same loss."""

from __future__ import annotations

import pytest
import torch

from headscope.errors import ModelError
from headscope.models.layout.projections import attention_modules, output_projection
from headscope.models.load import load_model
from headscope.studies.collapse import Unmixed, collapse


def unmix(model, corpus, **how):
    """The rows of a collapse that put an identity in W_O's place, and the untouched model."""
    table = collapse(model, corpus, mixing=True, **how).table
    return table[table["how"].isin(["untouched", "no W_O"])].reset_index(drop=True)


def test_it_equals_a_model_whose_w_o_is_the_identity(model_folder, keys_file):
    model = load_model(str(model_folder))
    table = unmix(model, keys_file, max_tokens=200)
    assert table["layer"].tolist() == ["", "0", "1", "all"]
    outputs = [output_projection(a) for a in attention_modules(model.engine.network)]
    bias = outputs[1].bias
    if bias is not None:
        torch.nn.init.normal_(bias, std=0.3)
        table = unmix(model, keys_file, max_tokens=200)
    for layers, row in (([1], 2), ([0], 3)):  # the second time both are identities
        for layer in layers:
            outputs[layer].weight.data.copy_(torch.eye(32))
        changed = unmix(model, keys_file, max_tokens=200)
        assert changed["loss"][0] == pytest.approx(table["loss"][row], abs=1e-4)
        assert abs(table["rise"][row]) > 1e-3


def test_without_mixing_no_feature_depends_on_two_heads(gpt2_folder):
    model = load_model(str(gpt2_folder))
    output = output_projection(attention_modules(model.engine.network)[0])
    z = torch.randn(1, 3, 32, requires_grad=True)
    with Unmixed(frozenset({0})).applied(model):
        (gradient,) = torch.autograd.grad(output(z)[..., 8:16].sum(), z)
    assert gradient[..., :8].abs().max() == gradient[..., 16:].abs().max() == 0
    assert gradient[..., 8:16].abs().min() > 0


def test_heads_of_another_width_are_refused(tokenizer, tmp_path, keys_file):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=4, head_dim=4,
        intermediate_size=16, vocab_size=len(tokenizer), max_position_embeddings=64,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    said = "its heads have 16 numbers together and the residual stream 32"
    with pytest.raises(ModelError, match=said):
        collapse(tmp_path, keys_file, mixing=True, max_tokens=100)
