"""One pattern for all heads of a layer: against Hugging Face's own patterns, by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.errors import ChoiceError, HeadscopeError, ModelError
from headscope.measure.study_windows import rise, text_windows
from headscope.models.layout.projections import attention_modules, projections
from headscope.models.load import load_model
from headscope.models.loss import TextLoss, loss, network_of
from headscope.studies.collapse import WAYS, collapse, collapsed
from tests.helpers.formats import columns_of
from tests.helpers.models import edit_config, own_code
from tests.helpers.shell import headscope


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(str(model_folder))


def eager(folder):
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def test_the_loss_is_that_of_the_models_own_logits_window_by_window(model, model_folder, story):
    windows = text_windows(model, story)
    own = eager(model_folder)
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
    with torch.no_grad(), collapsed(frozenset(layers), how).applied(model):
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


def test_collapse_to_head_0_changes_nothing_if_all_heads_ask_and_answer_alike(model_folder, story):
    model = load_model(str(model_folder))
    network, windows = network_of(model), text_windows(model, story)
    both, clean = frozenset({0, 1}), loss(model, windows)
    assert rise(loss(model, windows, collapsed(both, "head 0")), clean)[0] != 0
    with torch.no_grad():
        for module in attention_modules(network):
            query, key = projections(module, model.engine.dimensions)[:2]
            for matrix in (query, key):
                if matrix.dim() == 3:
                    matrix[:] = matrix[:1].clone()
                else:
                    width = matrix.shape[0] // (4 if matrix is query else _key_heads(module))
                    matrix[:] = matrix[:width].repeat(matrix.shape[0] // width, 1)
            for bias in _query_key_biases(module):
                bias.zero_()
    base = loss(model, windows)
    assert base.nats.tolist() != pytest.approx(clean.nats.tolist())
    for how in ("head 0", "mean"):
        found = loss(model, windows, collapsed(both, how))
        assert found.nats.tolist() == pytest.approx(base.nats.tolist())
    found = loss(model, windows, collapsed(both, "uniform"))
    assert found.nats.tolist() != pytest.approx(base.nats.tolist())


def _key_heads(module) -> int:
    return 2 if hasattr(module, "k_proj") else 4


def _query_key_biases(module):
    if hasattr(module, "c_attn"):
        return module.c_attn.bias.data.chunk(3)[:2]
    if hasattr(module, "query_key_value"):
        return [module.query_key_value.bias.data]
    return []


def test_the_network_is_untouched_afterwards_even_after_an_error(model, story):
    windows = text_windows(model, story)
    before = loss(model, windows)
    with pytest.raises(KeyError), collapsed(frozenset({0}), "uniform").applied(model):
        raise KeyError
    assert loss(model, windows).nats.tolist() == before.nats.tolist()
    with pytest.raises(ChoiceError, match="choose from: mean, head 0, uniform"):
        collapsed(frozenset({0}), "median")


def test_a_rise_has_the_interval_of_its_windows():
    """Windows whose rises are all alike leave no doubt; unlike ones bracket the mean."""
    import numpy as np

    tokens = np.array([10, 20, 30, 40])
    base = TextLoss(tokens * 2.0, tokens)
    assert rise(TextLoss(tokens * 2.5, tokens), base) == pytest.approx((0.5, 0.5, 0.5))
    value, low, high = rise(TextLoss(tokens * np.array([2.0, 2.5, 3.0, 2.2]), tokens), base)
    assert value == pytest.approx((0.5 * 20 + 1.0 * 30 + 0.2 * 40) / 100)
    assert 0 <= low < value < high <= 1
    single = rise(TextLoss(np.array([3.0]), np.array([1])), TextLoss(np.ones(1), np.array([1])))
    assert single[0] == 2
    assert math.isnan(single[1])
    assert math.isnan(single[2])


def test_the_table_has_a_row_per_layer_and_way(model, story):
    seen = []
    table = collapse(model, story, progress=lambda done, total: seen.append((done, total))).table
    assert list(table.columns) == columns_of("collapse")
    assert table["how"].tolist() == ["untouched", *[*WAYS] * 3]
    assert table["layer"].tolist() == ["", *["0"] * 3, *["1"] * 3, *["all"] * 3]
    assert table["rise"].tolist() == pytest.approx((table["loss"] - table["loss"][0]).tolist())
    assert seen[-1][0] == seen[-1][1]
    uniform = collapsed(frozenset({0, 1}), "uniform")
    assert table["loss"].iloc[-1] == loss(model, text_windows(model, story), uniform).mean


def test_the_command_prints_the_table_and_writes_csv_and_figure(
    gpt2_folder, story, tmp_path, command
):
    out, figure = tmp_path / "new" / "c.csv", tmp_path / "c.svg"
    words = (
        "study",
        "collapse",
        gpt2_folder,
        "--corpus",
        story,
        "-q",
        "--out",
        out,
        "--figure",
        figure,
    )
    done = headscope(*words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    table = pd.read_csv(out)
    assert f"{table['loss'][0]:.4f} with their own" in done.stdout
    last = table.iloc[-1]
    assert ["all", "uniform", f"{last['loss']:.3f}", f"{last['rise']:.3f}"] in [
        line.split()[:4] for line in done.stdout.splitlines()
    ]
    assert f"written to {out}" in done.stdout
    assert "<svg" in figure.read_text()
    first = out.read_bytes()
    assert command(*words, "--overwrite")[0] == 0
    assert out.read_bytes() == first


def test_a_model_that_the_fused_engine_does_not_know_is_refused(gpt2_folder, tmp_path):
    name = own_code(gpt2_folder, tmp_path / "gpt")
    with pytest.raises(ModelError, match=r"fused engine.*0 of its 2 layers show"):
        collapse(name)


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
