"""Features behind a head's edges: the parts add up, the planted pair is named, lazy ones are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.measure.study_windows import edge_windows
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.studies.features.dictionary import load_dictionary
from headscope.studies.features.edge_scores import EdgeReader
from headscope.studies.features.feature_pairs import find_pairs
from tests.helpers.dictionaries import save_dictionary
from tests.helpers.models import save_model
from tests.studies.features import planted_features as planted

REPEAT = next(r for r in relations_of(["induction"]) if r.name == "repeat")


@pytest.mark.parametrize("layout", ["gpt2", "llama", "gpt_neox"])
def test_the_parts_add_up_to_the_models_own_scores(layout, tokenizer, tmp_path):
    folder = save_model(layout, tokenizer, tmp_path / "model")
    save_dictionary(tmp_path / "sae", metadata={"hook_name": "blocks.0.hook_resid_post"})
    dictionary = load_dictionary(tmp_path / "sae", d_model=32, layer=1)
    model = load_model(str(folder))
    windows = edge_windows(model, [], {"repeat"}, seed=0)[:4]
    edges = next(EdgeReader(model, 1, 3, windows, REPEAT, dictionary).read(0))
    total = edges.parts().sum((0, 1))
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        tokens = torch.from_numpy(edges.window.tokens)[None]
        logs = plain(tokens, output_attentions=True).attentions[1][0, 3].double().log()
    # of one query the logarithms of attention differ as the scores do
    query = edges.query[0]
    same = (edges.query == query).nonzero()[:, 0]
    assert len(same) > 2
    of_model = logs[query, edges.key[same]]
    assert (of_model - of_model[0]).numpy() == pytest.approx(
        (total[same] - total[same][0]).numpy(), abs=1e-4
    )
    assert float((total - edges.scores()).abs().max()) < 1e-4
    # neither layout has a bias of queries, keys or norms that is not 0
    model_offset = max(float(side.offset.abs().max()) for side in edges.maps)
    assert model_offset < 1e-4
    # all pairs of features, and of features and biases, make up the parts without a remainder
    numbers, sums = edges.pair_sums()
    contrast = edges.parts()[[0, 0, 2, 2], [0, 2, 0, 2]].sum(0) @ (
        edges.weight[0] - edges.weight[1]
    )
    assert float(sums.sum()) == pytest.approx(float(contrast), rel=1e-4, abs=1e-4)
    values, _ = edges.of_pairs(numbers // 21, numbers % 21)
    of_pairs = (edges.weight[0] - edges.weight[1]) @ values
    assert of_pairs.numpy() == pytest.approx(sums.numpy(), rel=1e-4, abs=2e-3)


def test_a_pair_under_rotary_positions_is_what_the_weights_say(tokenizer, tmp_path):
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    folder = save_model("llama", tokenizer, tmp_path / "model")
    save_dictionary(tmp_path / "sae")
    dictionary = load_dictionary(tmp_path / "sae", d_model=32, layer=1)
    model = load_model(str(folder))
    windows = edge_windows(model, [], {"repeat"}, seed=0)[:2]
    edges = next(EdgeReader(model, 1, 3, windows, REPEAT, dictionary).read(0))
    plain = AutoModelForCausalLM.from_pretrained(folder)
    layer, edge = plain.model.layers[1], 5
    at = torch.stack([edges.query[edge], edges.key[edge]])
    stream = edges.stream[at]
    scale = (stream.square().mean(-1) + layer.input_layernorm.variance_epsilon).rsqrt()
    first, second = 2, 7
    inputs = torch.stack([dictionary.decoder[first], dictionary.decoder[second]])
    inputs = inputs * edges.activations[at, torch.tensor([first, second])][:, None]
    inputs = inputs * scale[:, None] * layer.input_layernorm.weight
    with torch.no_grad():
        query = layer.self_attn.q_proj(inputs).view(2, 4, 8)[:, 3]
        key = layer.self_attn.k_proj(inputs).view(2, 2, 8)[:, 1]
        cos, sin = plain.model.rotary_emb(inputs[None], at[None])
        query, key = apply_rotary_pos_emb(query[None, None], key[None, None], cos, sin)
    expected = float(query[0, 0, 0] @ key[0, 0, 1]) / 8**0.5
    values, active = edges.of_pairs(torch.tensor([first]), torch.tensor([second]))
    assert float(values[edge, 0]) == pytest.approx(expected, abs=1e-5)
    assert bool(active[edge, 0]) == (expected != 0)


@pytest.fixture(scope="module")
def reader(tokenizer, tmp_path_factory):
    folder = planted.save_planted(tokenizer, tmp_path_factory.mktemp("planted"))
    model = load_model(str(folder))
    windows = planted.windows(24, len(tokenizer))
    path = folder / "features.safetensors"
    dictionary = load_dictionary(path, d_model=planted.D_MODEL, layer=0)
    return EdgeReader(model, 0, 0, windows, planted.RELATION, dictionary)


@pytest.fixture(scope="module")
def found(reader):
    return find_pairs(reader)


def test_shares_are_of_the_score_on_the_documents_that_judge(reader, found):
    held_out, all_windows = (
        sum(
            np.array([float((edges.weight[0] - edges.weight[1]) @ edges.scores()), edges.count])
            for half in halves
            for edges in reader.read(half)
        )
        for halves in ([1], [0, 1])
    )
    score = held_out[0] / held_out[1]
    assert score != pytest.approx(all_windows[0] / all_windows[1], rel=1e-5)
    pairs = found[0]
    assert (pairs["contrast"] / score).to_numpy() == pytest.approx(
        pairs["share"].to_numpy(), rel=1e-6
    )


def test_the_planted_pair_leads_and_lazy_ones_do_not(found):
    pairs, parts, _ = found
    first, *others = pairs.itertuples()
    assert (first.query_name, first.key_name) == ("sought", "key")
    assert first.q_value < 1e-6
    assert first.ci_low > 0
    assert first.share == pytest.approx(1, abs=0.05)
    assert (first.fires, first.control_fires) == pytest.approx((1, 0))
    assert (first.query_tokens, first.key_tokens) == ("'t0'", "'t1'")
    assert max(abs(pair.contrast) for pair in others) < 0.05 * first.contrast
    # by the score on targets alone the lazy ones would lead
    lazy = pairs.set_index(["query_name", "key_name"])
    for pair in (("dense", "dense"), ("sought", "both")):
        assert lazy.loc[pair, "target"] > 1.2 * first.target
    of_features = parts.set_index(["query", "key"]).loc[("features", "features")]
    assert of_features["share"] == pytest.approx(1, abs=0.05)


def test_a_dictionary_without_the_planted_key_leaves_it_to_the_remainder(tokenizer, tmp_path):
    folder = planted.save_planted(tokenizer, tmp_path)
    known = [planted.DENSE, planted.SOUGHT, planted.BOTH]
    save_file({"W_dec": planted.directions()[known].contiguous()}, tmp_path / "part.safetensors")
    dictionary = load_dictionary(tmp_path / "part.safetensors", d_model=planted.D_MODEL, layer=0)
    windows = planted.windows(24, len(tokenizer))
    model = load_model(str(folder))
    pairs, parts, _ = find_pairs(EdgeReader(model, 0, 0, windows, planted.RELATION, dictionary))
    of_parts = parts.set_index(["query", "key"])["share"]
    assert of_parts["features", "remainder"] == pytest.approx(1, abs=0.05)
    assert of_parts["features", "features"] == pytest.approx(0, abs=0.05)
    assert pairs["share"].abs().max() < 0.05
    assert pairs["fires"].isna().all()


def slow_activations(kind, tensors, x):
    """SAELens' encoders, one position at a time."""
    before = (x - tensors["b_dec"]) @ tensors["W_enc"]
    if kind == "gated":
        sizes = torch.relu(before * torch.exp(tensors["r_mag"]) + tensors["b_mag"])
        return torch.where(before + tensors["b_gate"] > 0, sizes, 0.0)
    before = before + tensors["b_enc"]
    if kind == "jumprelu":
        return torch.where(before > tensors["threshold"], torch.relu(before), 0.0)
    if kind == "topk":
        return torch.where(before >= before.sort().values[-3], torch.relu(before), 0.0)
    return torch.relu(before)


@pytest.mark.parametrize("kind", ["standard", "topk", "jumprelu", "gated"])
def test_activations_are_those_of_saelens(kind, tmp_path):
    folder = save_dictionary(tmp_path / "sae", architecture=kind, k=3)
    tensors = load_file(folder / "sae_weights.safetensors")
    dictionary = load_dictionary(folder, d_model=32, layer=1)
    stream = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    activations, constant = dictionary.read(stream)
    for x, row in zip(stream, activations, strict=True):
        assert row.numpy() == pytest.approx(slow_activations(kind, tensors, x), abs=1e-5)
    assert constant[0].numpy() == pytest.approx(tensors["b_dec"].numpy())


def test_an_input_that_is_normed_is_scaled_back(tmp_path):
    folder = save_dictionary(tmp_path / "sae", normalize_activations="layer_norm")
    tensors = load_file(folder / "sae_weights.safetensors")
    dictionary = load_dictionary(folder, d_model=32, layer=1)
    stream = torch.randn(1, 32, generator=torch.Generator().manual_seed(0)) * 7 + 2
    activations, constant = dictionary.read(stream)
    size = float(stream.std()) + 1e-5
    normed = (stream[0] - stream.mean()) / size
    expected = slow_activations("standard", tensors, normed) * size
    assert activations[0].numpy() == pytest.approx(expected.numpy(), rel=1e-4, abs=1e-4)
    assert constant[0].numpy() == pytest.approx((tensors["b_dec"] * size).numpy(), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata": {"hook_name": "blocks.1.hook_mlp_out"}}, "it reads blocks.1.hook_mlp_out"),
        ({"metadata": {"hook_name": "blocks.1.hook_resid_post"}}, "comes after the attention"),
        ({"architecture": "temporal"}, "known are standard, topk"),
        ({"architecture": "topk"}, "does not say the k"),
        ({"normalize_activations": "whitened"}, "normed as 'whitened'"),
        ({"d_model": 16}, "a W_dec of [20, 16]; the model's stream takes [feature 32]"),
    ],
)
def test_a_dictionary_of_something_else_is_refused(options, message, tmp_path):
    save_dictionary(tmp_path / "sae", **options)
    with pytest.raises(HeadscopeError) as refused:
        load_dictionary(tmp_path / "sae", d_model=32, layer=1)
    assert message in str(refused.value)


def test_directions_alone_must_not_depend_on_each_other(tmp_path):
    path = tmp_path / "directions.safetensors"
    save_file({"W_dec": torch.ones(3, 32)}, path)
    with pytest.raises(HeadscopeError, match="3 directions without W_enc"):
        load_dictionary(path, d_model=32, layer=1)
    with pytest.raises(HeadscopeError, match="no such file or folder; give a folder of SAELens"):
        load_dictionary(tmp_path / "no.safetensors", d_model=32, layer=1)
    path.write_text("x")
    with pytest.raises(HeadscopeError, match="no safetensors file"):
        load_dictionary(path, d_model=32, layer=1)


def test_the_command_writes_both_tables(gpt2_folder, tmp_path, command):
    out = tmp_path / "run"
    run = hs.classify(str(gpt2_folder), "gold", max_tokens=2_000, examples=False, twin=False,
                      types=["induction"], out=out)  # fmt: skip
    width = load_model(str(gpt2_folder)).engine.network.config.n_embd
    save_dictionary(tmp_path / "sae", d_model=width)
    words = ("study", "features", out, "L1H0", "--dictionary", tmp_path / "sae")
    words += ("--relation", "induction/repeat", "--out", tmp_path / "pairs.csv")
    code, shown, _ = command(*words, "--figure", tmp_path / "pairs.svg")
    assert code == 0
    assert "The parts add up to each score within" in " ".join(shown.split())
    result = hs.studies.features(
        run, "L1H0", dictionary=tmp_path / "sae", relation="induction/repeat"
    )
    assert (tmp_path / "pairs.csv").read_text() == result.csv()
    assert (tmp_path / "pairs-parts.csv").exists()
    assert "pairs carry its score" in repr(result)
    parts = result.parts
    assert parts["contrast"][:-1].sum() == pytest.approx(parts["contrast"].iloc[-1], abs=1e-4)
    assert np.isclose(parts["share"].iloc[-1], 1)
    code, _, told = command(*words[:5], tmp_path / "none", *words[6:8])
    assert code == 2
    assert "no such file" in told
