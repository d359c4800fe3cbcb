"""One pattern for all heads of a layer, and W_O as identity: against transformers, by hand."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.causal.loss import loss, network_of
from headscope.errors import ModelError
from headscope.measure.study_windows import text_windows
from headscope.models.layout.projections import attention_modules, output_projection
from headscope.models.load import load_model
from headscope.studies.collapse import WAYS, WEIGHT_WAYS, collapse, collapsed
from tests.models.every_layout import save_tiny


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(str(model_folder))


def eager(folder):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


@pytest.mark.parametrize("layers", [{0}, {1}, {0, 1}])
@pytest.mark.parametrize("how", list(WAYS))
def test_collapse_is_what_a_loop_over_heads_writes(model, model_folder, layers, how):
    """The loop takes Hugging Face's own patterns and the value weights, head by head."""
    tokens = torch.randint(1, 90, (3, 20), generator=torch.Generator().manual_seed(0))
    network, wrote, own_patterns = network_of(model), {}, {}
    watched = attention_modules(network)
    for i, module in enumerate(watched):
        name = next(n for n in ("c_proj", "dense", "o_proj") if hasattr(module, n))
        getattr(module, name).register_forward_pre_hook(
            lambda _, given, i=i: wrote.__setitem__(i, given[0].detach())
        )
    heard = {}
    for i, module in enumerate(watched):
        module.register_forward_pre_hook(
            lambda _, given, named, i=i: heard.__setitem__(
                i, given[0] if given else named["hidden_states"]
            ),
            with_kwargs=True,
        )
    with torch.no_grad(), collapsed(frozenset(layers), model.heads, how).applied(model):
        network.base_model(tokens, use_cache=False)
    # the patterns of a lower layer are those of the untouched model
    with torch.no_grad():
        own = eager(model_folder)(tokens, output_attentions=True).attentions
    lowest = min(layers)
    own_patterns[lowest] = own[lowest]
    values = _values(watched[lowest], heard[lowest])
    heads, width = own[0].shape[1], values.shape[-1]
    written = wrote[lowest].view(3, 20, heads, width)
    for window in range(3):
        for query in range(20):
            row = {
                "mean": sum(own[lowest][window, h, query] for h in range(heads)) / heads,
                "head 0": own[lowest][window, 0, query],
                "uniform": torch.tensor([1 / (query + 1)] * (query + 1) + [0.0] * (19 - query)),
            }[how]
            for head in range(heads):
                group = head // (heads // values.shape[2])
                expected = sum(row[key] * values[window, key, group] for key in range(query + 1))
                assert torch.allclose(written[window, query, head], expected, atol=1e-4)


def _values(module, hidden):
    """`[window position head width]` by the module's own weights and biases."""
    if hasattr(module, "c_attn"):
        flat = module.c_attn(hidden).chunk(3, -1)[2]
        return flat.view(*flat.shape[:2], module.num_heads, -1)
    if hasattr(module, "query_key_value"):
        flat = module.query_key_value(hidden)
        return flat.view(*flat.shape[:2], -1, 3 * module.head_size)[..., 2 * module.head_size :]
    flat = module.v_proj(hidden)
    return flat.view(*flat.shape[:2], -1, module.head_dim)


def test_the_table_has_a_row_per_layer_and_way(model, story):
    table = collapse(model, story).table
    assert table["how"].tolist() == ["untouched", *[*WAYS] * 3]
    assert table["layer"].tolist() == ["", *["0"] * 3, *["1"] * 3, *["all"] * 3]
    assert table["rise"].tolist() == pytest.approx((table["loss"] - table["loss"][0]).tolist())
    uniform = collapsed(frozenset({0, 1}), model.heads, "uniform")
    assert table["loss"].iloc[-1] == loss(model, text_windows(model, story), uniform).mean


def test_weights_of_head_0_give_all_heads_its_pattern(model, story):
    table = collapse(model, story, weights=True).table.set_index(["layer", "how"])
    assert {*table.index.get_level_values("how")} == {"untouched", *WAYS, *WEIGHT_WAYS}
    by_way = table["loss"].unstack("how").drop(index="")
    assert by_way["head 0 W_QK"].tolist() == pytest.approx(by_way["head 0"].tolist(), abs=1e-5)
    assert (by_way["mean W_QK"] - by_way["mean"]).abs().min() > 1e-5


def query_and_key_rows(module, name: str) -> list[torch.Tensor]:
    """Rows of W_Q and of W_K (or of their biases) by head, in place."""
    if hasattr(module, "c_attn"):
        columns = getattr(module.c_attn, name).data.T if name == "weight" else module.c_attn.bias
        return [part.data.view(4, 8, *part.shape[1:]) for part in columns.data.split(32)[:2]]
    if hasattr(module, "query_key_value"):
        heads = getattr(module.query_key_value, name).data
        heads = heads.view(4, 3, 8, *heads.shape[1:])
        return [heads[:, 0], heads[:, 1]]
    parts = [getattr(module.q_proj, name), getattr(module.k_proj, name)]
    return [part.data.view(-1, 8, *part.shape[1:]) for part in parts if part is not None]


def test_mean_weights_are_those_of_a_model_with_rewritten_matrices(model_folder, story):
    model = load_model(str(model_folder))
    before = {name: w.clone() for name, w in model.engine.network.state_dict().items()}
    table = collapse(model, story, weights=True).table.set_index(["layer", "how"])
    after = model.engine.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    rewritten = load_model(str(model_folder))
    for module in attention_modules(rewritten.engine.network):
        for name in ("weight", "bias"):
            for heads in query_and_key_rows(module, name):
                heads.copy_(torch.stack([sum(heads) / len(heads)] * len(heads)))
    expected = loss(rewritten, text_windows(rewritten, story)).mean
    assert table.loc[("all", "mean W_QK"), "loss"] == pytest.approx(expected, abs=1e-5)
    assert abs(table.loc[("all", "mean W_QK"), "rise"]) > 1e-3


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


def test_heads_of_another_width_are_refused(tokenizer, tmp_path, keys_file):
    save_tiny("llama", tokenizer, tmp_path, head_dim=4)
    with pytest.raises(ModelError, match=r"16.*32"):
        collapse(tmp_path, keys_file, mixing=True, max_tokens=100)
