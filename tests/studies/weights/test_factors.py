"""Folded matrices: as TransformerLens folds them, and as Hugging Face's own attention acts."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM

from headscope.errors import ModelError
from headscope.models.load import load_model
from headscope.studies.weights import head_factors


def test_they_are_transformer_lens_own_processed_weights(normed_folder):
    factors = head_factors(load_model(str(normed_folder), engine="lens"))
    bridge = load_model(str(normed_folder), engine="lens").bridge
    raw = bridge.W_V.clone()
    bridge.enable_compatibility_mode(disable_warnings=True)
    assert (bridge.W_V - raw).abs().max() > 0.1  # there was something to fold
    for own, theirs in (
        (factors.query, bridge.W_Q),
        (factors.key, bridge._expand_kv_heads(bridge.W_K)),
        (factors.value, bridge._expand_kv_heads(bridge.W_V)),
        (factors.output, bridge.W_O),
    ):
        torch.testing.assert_close(own, theirs.detach(), atol=1e-5, rtol=1e-4)


def test_the_model_stays_as_it_was(normed_folder):
    model = load_model(str(normed_folder), engine="lens")
    before = {name: p.clone() for name, p in model.bridge.named_parameters()}
    head_factors(model)
    assert all(torch.equal(before[name], p) for name, p in model.bridge.named_parameters())


ATTENTION = {
    "gpt2": lambda hf, i: (hf.transformer.h[i].ln_1, hf.transformer.h[i].attn),
    "gpt_neox": lambda hf, i: (
        hf.gpt_neox.layers[i].input_layernorm, hf.gpt_neox.layers[i].attention,
    ),
    "llama": lambda hf, i: (hf.model.layers[i].input_layernorm, hf.model.layers[i].self_attn),
}  # fmt: skip


def test_they_write_what_hugging_faces_attention_writes(normed_folder, layout):
    """One token attends to itself alone: norm, V and O are all that attention does then."""
    factors = head_factors(load_model(str(normed_folder), engine="lens"))
    hf = AutoModelForCausalLM.from_pretrained(normed_folder, attn_implementation="eager").eval()
    x = torch.randn(2, 1, 32, generator=torch.Generator().manual_seed(0))
    still = {"position_embeddings": (torch.ones(2, 1, 8), torch.zeros(2, 1, 8))}
    extra = {} if layout == "gpt2" else still | {"attention_mask": None}
    mean = 0 if layout == "llama" else x.mean(-1, keepdim=True)
    scaled = (x - mean) / (x - mean).square().mean(-1, keepdim=True).sqrt()
    for layer in range(2):
        norm, attention = ATTENTION[layout](hf, layer)
        with torch.no_grad():
            theirs = attention(norm(x), **extra)[0]
        own = torch.einsum(
            "bi,hiv,hvo->bo", scaled[:, 0], factors.value[layer], factors.output[layer]
        )
        difference = (theirs[0] - theirs[1]).flatten()  # biases drop out
        if layout != "llama":
            difference = difference - difference.mean()
        torch.testing.assert_close(own[0] - own[1], difference, atol=1e-4, rtol=1e-3)


def test_query_heads_of_a_group_share_their_keys_and_values(normed_folder, layout):
    factors = head_factors(load_model(str(normed_folder), engine="lens"))
    for matrix in (factors.key, factors.value):
        shared = torch.equal(matrix[:, 0], matrix[:, 1])
        assert shared == (layout == "llama")  # two key/value heads for four query heads
        assert not torch.equal(matrix[:, 1], matrix[:, 2])
    assert not torch.equal(factors.query[:, 0], factors.query[:, 1])


def test_only_what_nothing_reads_is_taken_out(normed_folder, layout):
    factors = head_factors(load_model(str(normed_folder), engine="lens"))
    mean = factors.output.mean(-1).abs().max()
    assert (mean < 1e-6) == (layout != "llama")
    assert factors.free == (32 if layout == "llama" else 31)


def test_norms_behind_attention_are_refused(tokenizer, tmp_path):
    config = Gemma2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"norms of a Gemma2ForCausalLM do not fold .*none behind"):
        head_factors(load_model(str(tmp_path), engine="lens"))
