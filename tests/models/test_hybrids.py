"""Hybrids: layers with softmax attention keep their numbers, the others are named as not there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.causal.intervention import ablated
from headscope.causal.rerun import Rerunner, TokenRows
from headscope.errors import ModelError, RunError
from headscope.models.layout.projections import output_projection
from headscope.models.load import load_model
from headscope.resolve import load
from tests.helpers.models import save_uneven
from tests.helpers.shell import headscope
from tests.models.tiny import tiny_config

WITH = (1, 3)
"""Layers with attention, of four."""
LAYERS = {
    "jamba": {"num_hidden_layers": 4},
    "qwen3_next": {
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "mlp_only_layers": [],
    },
}
NAMES = [f"L{layer}H{head}" for layer in WITH for head in range(4)]
NOTE = "layers 0, 2 have no softmax attention"


@pytest.fixture(scope="module", params=LAYERS)
def folder(request, tokenizer, tmp_path_factory):
    """A model with random weights that let heads attend unevenly."""
    config = tiny_config(request.param)
    stated = config.to_dict() | LAYERS[request.param] | {"vocab_size": 400}
    network = AutoModelForCausalLM.from_config(type(config)(**stated))
    return save_uneven(network, tokenizer, tmp_path_factory.mktemp(request.param) / "model")


@pytest.fixture(scope="module")
def classified(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    settings = hs.Settings(max_tokens=2000, max_length=64, keep_sums=True)
    hs.classify(str(folder), "controlled", settings=settings, out=out)
    return out


def test_the_lens_engine_reads_no_hybrid(folder):
    with pytest.raises(ModelError, match="fused"):
        load_model(str(folder), engine="lens")


def test_a_loaded_model_keeps_no_hook_of_the_check(folder):
    network = load_model(str(folder)).engine.network
    hooks = [hook for module in network.modules() for hook in module._forward_hooks.values()]
    assert not [hook for hook in hooks if str(hook.__module__).startswith("headscope.")]


def test_a_run_names_its_heads_as_the_model_does(classified):
    found = load(classified, with_tally=True)
    assert found.heads.index.tolist() == NAMES
    assert set(found.evidence["layer"]) == set(WITH)
    assert found.tally.numbers == WITH
    assert found.tally.target.shape[2] == len(WITH)
    assert (found.info["model"]["layers"], found.info["model"]["attention_layers"]) == (4, [*WITH])
    assert [note for note in found.info["notes"] if NOTE in note]


def test_the_tally_of_a_hybrid_is_of_its_own_rows(classified):
    """Numbers of L3 are those of layer 3, not of layer 1."""
    found = load(classified, with_tally=True)
    for layer in WITH:
        table = found.evidence[found.evidence["layer"] == layer]
        relation = table.iloc[0]["type"] + "/" + table.iloc[0]["relation"]
        row, index = WITH.index(layer), found.tally.relations.index(relation)
        sums = found.tally.target[:, index, row].sum(0) / found.tally.queries[:, index].sum()
        assert np.allclose(table["mass"].iloc[:4], sums, atol=1e-5)
    first, last = (found.tally.target[:, :, row].sum(0) for row in (0, 1))
    assert not np.allclose(first, last, rtol=1e-2)


@pytest.mark.parametrize("head", ["L0H1", "L2H0"])
def test_a_head_of_another_layer_is_refused_by_what_that_layer_lacks(head, classified, folder):
    asked = ("why", classified, head), ("show", folder, head, "hello")
    for found in (headscope(*words) for words in asked):
        assert found.returncode == 2
        assert f"no head {head} in" in found.stderr
        assert NOTE in found.stderr
    with pytest.raises(RunError, match="L3H3"):
        hs.show(str(folder), "L4H0", "hello")
    assert hs.show(str(folder), "L3H3", "hello").title.endswith("L3H3")


def test_a_single_head_is_read_by_the_number_of_its_own_layer(folder, classified):
    asked = {"max_tokens": 2000, "max_length": 64, "progress": False}
    answers = hs.why(str(folder), "L3H1", "controlled", **asked)
    keys = ["layer", "head", "type", "relation"]
    both = answers.run.evidence.merge(load(classified).evidence, on=keys, suffixes=("", "_whole"))
    assert set(both["layer"]) == {3}
    assert np.allclose(both["mass"], both["mass_whole"], atol=1e-5)
    with pytest.raises(RunError, match=f"L2H0.*{NOTE}"):
        hs.why(str(folder), "L2H0", "controlled", **asked)


def test_studies_change_the_layers_that_they_name(classified, folder):
    asked = {"max_tokens": 300}
    pruned = hs.prune(classified, "controlled", max_tokens=1000)
    assert np.size(pruned.values["importance"]) == len(NAMES)
    shared = hs.collapse(str(folder), "controlled", mixing=True, **asked)
    assert shared.table["layer"].unique().tolist() == ["", "1", "3", "all"]
    alike = hs.redundancy(classified, windows=2)
    assert [f"L{r.layer}H{r.head}" for r in alike.table.itertuples()] == NAMES


@pytest.mark.parametrize("how", ["zero", "mean"])
def test_ablating_runs_all_layers_from_the_head_s_own_on(how, folder):
    """The same as hooks on the whole model give, which skip no layer."""
    model = load_model(str(folder))
    rerunner = Rerunner(model)
    tokens = torch.arange(1, 25).view(2, 12)
    row, position = torch.tensor([0, 1, 1]), torch.tensor([4, 7, 11])
    clean = rerunner.clean(TokenRows(tokens, torch.tensor([12, 12]), row, position))
    assert set(clean.z) == set(WITH)
    for layer in WITH:
        found = rerunner.scores(clean, ablated(how, clean, {layer: [2]}))
        own = model.engine.network.model.layers[layer].self_attn
        new = torch.zeros(8) if how == "zero" else clean.z[layer][:, 1:, 2].mean((0, 1))

        def change(_, given, new=new):
            z = given[0].clone()
            z[..., 16:24] = new
            return (z, *given[1:])

        handle = output_projection(own).register_forward_pre_hook(change)
        with torch.no_grad():
            logits = model.engine.network(tokens, use_cache=False).logits
        handle.remove()
        logp = logits.log_softmax(-1)[row, position - 1]
        assert torch.allclose(
            found, logp.gather(1, tokens[row, position][:, None])[:, 0], atol=1e-4
        )
        assert not torch.allclose(found, rerunner.scores(clean), atol=1e-3)


def test_tokens_of_a_model_that_mixes_them_otherwise_do_not_run_alone(folder):
    with pytest.raises(ModelError, match="attention"):
        Rerunner(load_model(str(folder))).check_tokens_alone()
