"""OV copying: closed forms, the whole vocabulary × vocabulary circuit, built heads."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import ModelError
from headscope.models.load import load_model
from headscope.studies.weights import (
    HeadFactors,
    copying_scores,
    effective_embedding,
    head_factors,
    token_map,
)
from tests.helpers.models import save_model


def one_head(value: torch.Tensor, output: torch.Tensor) -> HeadFactors:
    """One head that reads and writes as given; its queries and keys do not matter."""
    v, o = value[None, None].float(), output[None, None].float()
    return HeadFactors(v, v, v, o, free=value.shape[0])


def test_closed_forms():
    read = torch.zeros(6, 4)
    read[:4] = torch.eye(4)
    tokens = torch.eye(6)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])  # eigenvalues ±i
    for circuit, score in (
        (torch.eye(4), 1.0),
        (-torch.eye(4), -1.0),
        (torch.diag(torch.tensor([1.0, 1, 1, -1])), 0.5),
        (torch.diag(torch.tensor([3.0, 0, 0, -1])), 0.5),
        (torch.block_diag(turn, turn), 0.0),
        (torch.block_diag(turn, torch.eye(2)), 0.5),
    ):
        found = copying_scores(one_head(read, circuit @ read.T), tokens)
        assert found.item() == pytest.approx(score, abs=1e-6)
    assert copying_scores(one_head(read, torch.zeros(4, 6)), tokens).isnan().all()


def test_the_small_product_has_the_eigenvalues_of_the_whole_circuit(normed_folder):
    """W_E W_V W_O W_U itself, from the weights that TransformerLens processes."""
    model = load_model(str(normed_folder), engine="lens")
    found = copying_scores(head_factors(model), token_map(model))
    bridge = load_model(str(normed_folder), engine="lens").bridge
    bridge.enable_compatibility_mode(disable_warnings=True)
    value, output = bridge._expand_kv_heads(bridge.W_V).double(), bridge.W_O.double()
    with torch.no_grad():
        for layer in range(model.layers):
            for head in range(model.heads):
                circuit = bridge.W_E.double() @ value[layer, head] @ output[layer, head]
                eigenvalues = torch.linalg.eigvals(circuit @ bridge.W_U.double())
                score = eigenvalues.sum().real / eigenvalues.abs().sum()
                assert found[layer, head].item() == pytest.approx(score.item(), abs=1e-4)


@pytest.fixture(scope="module")
def copiers(tokenizer, tmp_path_factory):
    """In layer 0, head 0 copies a slice of the embedding, head 1 takes one away, head 2 is idle."""
    folder = save_model("gpt2", tokenizer, tmp_path_factory.mktemp("copiers"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    attention = model.transformer.h[0].attn
    with torch.no_grad():
        value = attention.c_attn.weight[:, 64:]  # [d_model, head · d_head], behind Q and K
        value.zero_()
        attention.c_proj.weight.zero_()
        for head, sign in ((0, 1.0), (1, -1.0)):
            own = slice(8 * head, 8 * head + 8)
            value[own, own] = torch.eye(8)
            attention.c_proj.weight[own, own] = sign * torch.eye(8)
    model.save_pretrained(folder)
    return folder


def test_a_head_that_copies_scores_1_its_negative_minus_1_and_an_idle_one_nothing(copiers):
    heads = hs.weights(str(copiers)).table
    score = heads.query("layer == 0")["ov_copying"]
    assert score[0] == pytest.approx(1, abs=1e-6)
    assert score[1] == pytest.approx(-1, abs=1e-6)
    assert score[2:].isna().all()
    # a head without output is nobody's best source
    assert set(heads["k_from"][4:]) <= {"L0H0", "L0H1"}
    assert heads.query("layer == 1")["ov_copying"].abs().max() < 0.9  # these are random


FIRST_MLP = {
    "gpt2": lambda hf: (hf.transformer.wte, hf.transformer.h[0].ln_2, hf.transformer.h[0].mlp),
    "gpt_neox": lambda hf: (
        hf.gpt_neox.embed_in, hf.gpt_neox.layers[0].post_attention_layernorm,
        hf.gpt_neox.layers[0].mlp,
    ),
    "llama": lambda hf: (
        hf.model.embed_tokens, hf.model.layers[0].post_attention_layernorm, hf.model.layers[0].mlp,
    ),
}  # fmt: skip


def test_the_effective_embedding_is_the_embedding_and_the_first_mlps_answer(normed_folder, layout):
    found = effective_embedding(load_model(str(normed_folder), engine="lens"))
    hf = AutoModelForCausalLM.from_pretrained(normed_folder).eval()
    embed, norm, mlp = FIRST_MLP[layout](hf)
    with torch.no_grad():
        rows = embed.weight + mlp(norm(embed.weight))
    if layout != "llama":
        rows = rows - rows.mean(-1, keepdim=True)
    rows = rows / rows.square().mean(-1, keepdim=True).sqrt()
    assert not torch.allclose(rows, embed.weight, atol=0.1)
    torch.testing.assert_close(found, rows, atol=1e-4, rtol=1e-3)


def test_reading_the_effective_embedding_leaves_the_model_as_it_was(gpt2_folder):
    model = load_model(str(gpt2_folder), engine="lens")
    tokens = torch.arange(5, 25)[None]
    with torch.no_grad():
        before = model.bridge(tokens)
        effective_embedding(model)
        assert torch.equal(before, model.bridge(tokens))


def test_another_vocabulary_at_the_end_is_refused(gpt2_folder, monkeypatch):
    model = load_model(str(gpt2_folder), engine="lens")
    monkeypatch.setattr(
        type(model.bridge), "W_U", property(lambda self: torch.ones(32, 7)), raising=True
    )
    with pytest.raises(ModelError, match=r"embeds \d+ tokens and unembeds 7"):
        token_map(model)
