"""Copying, composition and folding, against TransformerLens, closed forms and planted heads."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.corpus.shipped import MINI
from headscope.errors import ModelError, RunError
from headscope.models.load import load_model
from headscope.studies.weights import (
    HeadFactors,
    copying_scores,
    effective_embedding,
    effective_ranks,
    head_factors,
    k_composition,
    token_map,
)
from tests.helpers.formats import columns_of
from tests.helpers.models import LAYOUTS, save_model
from tests.models.every_layout import save_tiny
from tests.oracles.planted import HEADS, save_planted
from tests.oracles.planted import LAYOUTS as PLANTED_LAYOUTS


@pytest.fixture(scope="session", params=LAYOUTS)
def layout(request) -> str:
    return request.param


@pytest.fixture(scope="session")
def normed_folder(layout, tokenizer, tmp_path_factory) -> Path:
    import torch
    from transformers import AutoModelForCausalLM

    folder = save_model(layout, tokenizer, tmp_path_factory.mktemp(f"normed-{layout}"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:  # gains and all biases
                gain = float("bias" not in name)
                parameter.copy_(gain + 0.5 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    return folder


def random_factors(seed: int, layers=3, heads=2, width=12, d_head=4, d_value=3) -> HeadFactors:
    generator = torch.Generator().manual_seed(seed)

    def draw(rows, columns):
        return torch.randn(layers, heads, rows, columns, generator=generator)

    return HeadFactors(
        draw(width, d_head), draw(width, d_head), draw(width, d_value), draw(d_value, width), width
    )


@pytest.fixture
def folded(normed_folder):
    """TransformerLens' model with processed weights."""
    bridge = load_model(str(normed_folder), engine="lens").bridge
    raw = bridge.W_V.clone()
    bridge.enable_compatibility_mode(disable_warnings=True)
    assert (bridge.W_V - raw).abs().max() > 0.1  # there was something to fold
    return bridge


def test_factors_are_transformer_lens_own_processed_weights(normed_folder, folded, layout):
    model = load_model(str(normed_folder), engine="lens")
    before = {name: p.clone() for name, p in model.bridge.named_parameters()}
    factors = head_factors(model)
    assert all(torch.equal(before[name], p) for name, p in model.bridge.named_parameters())
    for own, theirs in (
        (factors.query, folded.W_Q),
        (factors.key, folded._expand_kv_heads(folded.W_K)),
        (factors.value, folded._expand_kv_heads(folded.W_V)),
        (factors.output, folded.W_O),
    ):
        torch.testing.assert_close(own, theirs.detach(), atol=1e-5, rtol=1e-4)
    assert factors.free == (32 if layout == "llama" else 31)


def test_norms_behind_attention_are_refused(tokenizer, tmp_path):
    save_tiny("gemma2", tokenizer, tmp_path)
    with pytest.raises(ModelError, match="Gemma2ForCausalLM"):
        head_factors(load_model(str(tmp_path), engine="lens"))


def test_composition_is_transformer_lens_own(normed_folder, folded):
    found = k_composition(head_factors(load_model(str(normed_folder), engine="lens")))
    with torch.no_grad():
        theirs = folded.all_composition_scores("K").scores
    assert found[0, :, 1].isfinite().all()
    torch.testing.assert_close(found[0, :, 1], theirs[0, :, 1], atol=1e-4, rtol=1e-3)


def test_ranks_are_the_entropy_of_the_singular_values_of_the_whole_circuit():
    f = random_factors(4)
    for found, left, right in zip(
        effective_ranks(f), (f.query, f.value), (f.key.mT, f.output), strict=True
    ):
        for layer, head in np.ndindex(found.shape):
            values = torch.linalg.svdvals((left[layer, head] @ right[layer, head]).double())
            p = (values / values.sum()).tolist()
            rank = math.exp(-sum(x * math.log(x) for x in p if x > 1e-12))
            assert found[layer, head].item() == pytest.approx(rank, rel=1e-4)


def test_copying_has_closed_forms():
    read = torch.zeros(6, 4)
    read[:4] = torch.eye(4)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])  # eigenvalues ±i
    for circuit, score in (
        (torch.eye(4), 1.0),
        (-torch.eye(4), -1.0),
        (torch.diag(torch.tensor([3.0, 0, 0, -1])), 0.5),
        (torch.block_diag(turn, turn), 0.0),
        (torch.block_diag(turn, torch.eye(2)), 0.5),
        (torch.zeros(4, 4), math.nan),
    ):
        value, output = read[None, None], (circuit @ read.T)[None, None]
        found = copying_scores(HeadFactors(value, value, value, output, free=6), torch.eye(6))
        assert found.item() == pytest.approx(score, abs=1e-6, nan_ok=True)


def test_the_small_product_has_the_eigenvalues_of_the_whole_circuit(normed_folder, folded):
    """W_E W_V W_O W_U itself, from the weights that TransformerLens processes."""
    model = load_model(str(normed_folder), engine="lens")
    found = copying_scores(head_factors(model), token_map(model))
    value, output = folded._expand_kv_heads(folded.W_V).double(), folded.W_O.double()
    with torch.no_grad():
        for layer, head in np.ndindex(found.shape):
            circuit = folded.W_E.double() @ value[layer, head] @ output[layer, head]
            eigenvalues = torch.linalg.eigvals(circuit @ folded.W_U.double())
            score = eigenvalues.sum().real / eigenvalues.abs().sum()
            assert found[layer, head].item() == pytest.approx(score.item(), abs=1e-4)


FIRST_MLP = {
    "gpt2": lambda hf: (hf.transformer.wte, hf.transformer.h[0].ln_2, hf.transformer.h[0].mlp),
    "gpt_neox": lambda hf: (
        hf.gpt_neox.embed_in,
        hf.gpt_neox.layers[0].post_attention_layernorm,
        hf.gpt_neox.layers[0].mlp,
    ),
    "llama": lambda hf: (
        hf.model.embed_tokens,
        hf.model.layers[0].post_attention_layernorm,
        hf.model.layers[0].mlp,
    ),
}


def test_the_effective_embedding_is_the_embedding_and_the_first_mlps_answer(normed_folder, layout):
    model = load_model(str(normed_folder), engine="lens")
    tokens = torch.arange(5, 25)[None]
    with torch.no_grad():
        before = model.bridge(tokens)
        found = effective_embedding(model)
        assert torch.equal(before, model.bridge(tokens))
    hf = AutoModelForCausalLM.from_pretrained(normed_folder).eval()
    embed, norm, mlp = FIRST_MLP[layout](hf)
    with torch.no_grad():
        rows = embed.weight + mlp(norm(embed.weight))
    if layout != "llama":
        rows = rows - rows.mean(-1, keepdim=True)
    rows = rows / rows.square().mean(-1, keepdim=True).sqrt()
    torch.testing.assert_close(found, rows, atol=1e-4, rtol=1e-3)


BESIDE = ["primary", "relation", "mass", "k_from_relation"]
COLUMNS = [name for name in columns_of("weights") if name not in BESIDE]


@pytest.fixture(scope="module")
def mini():
    return hs.weights(MINI)


def test_a_row_per_head_with_the_best_earlier_head(mini):
    model = load_model(MINI, device="cpu", engine="lens")
    pd.testing.assert_frame_equal(mini.table, hs.weights(model).table)
    assert mini.table.columns.tolist() == COLUMNS
    assert list(zip(mini.table["layer"], mini.table["head"], strict=True)) == [
        (layer, head) for layer in range(6) for head in range(8)
    ]
    first = mini.table.query("layer == 0")
    assert first["ov_copying_mlp0"].isna().all()
    assert (first["k_from"] == "").all()
    scores = k_composition(head_factors(model))
    for row in mini.table.query("layer > 0").itertuples():
        own = scores[: row.layer, :, row.layer, row.head]
        assert row.k_composition == own.max().item()
        assert row.k_from == "L{}H{}".format(*divmod(int(own.argmax()), own.shape[1]))


@pytest.mark.parametrize("layout", PLANTED_LAYOUTS)
def test_the_planted_induction_head_finds_its_keys_by_the_planted_previous_token_head(
    layout, tmp_path
):
    words = "<bos> <unk> the old king lost a ring . he near Anna".split()
    found = hs.weights(str(save_planted(layout, words, tmp_path, noise=0.01)))
    place = {}
    for layer in (0, 1):
        for head, planted in enumerate(h for h in HEADS if h.layer == layer):
            place[planted.name] = (layer, head)
    best = found.table.loc[found.table["k_composition"].idxmax()]
    assert best["k_from"] == "L{}H{}".format(*place["previous token"])
    assert (best["layer"], best["head"]) == place["induction"]
    assert best["k_composition"] > 2 * found.values["k_random_p999"]


def test_tags_of_a_run_stand_beside_the_weights(small_run, gpt2_folder):
    run = hs.load(small_run)
    found = hs.weights(run).table
    assert found.columns.tolist() == [*COLUMNS, *BESIDE]
    pd.testing.assert_frame_equal(found[COLUMNS], hs.weights(str(gpt2_folder)).table)
    for name in ("primary", "relation", "mass"):
        assert found[name].tolist() == run.heads.sort_values(["layer", "head"])[name].tolist()
    later = found[found["layer"] == 1]
    assert later["k_from_relation"].tolist() == run.heads.loc[later["k_from"], "relation"].tolist()
    with pytest.raises(RunError, match="'main'"):
        hs.weights(run, revision="main")
