"""Counts against the models that transformers builds, formulas and published numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.models import locate
from headscope.views.study_result import StudyResult

GIB = 2**30


def parameters(result: StudyResult) -> pd.DataFrame:
    """Rows of the parameters by part."""
    return result.table.query("section == 'parameters'").set_index("name")


def size_of(result: StudyResult, part: str) -> int:
    size = parameters(result).loc[part, "value"]
    assert isinstance(size, int)
    return size


def dimension(result: StudyResult, name: str) -> int:
    return result.table.query("section == 'dimensions'").set_index("name").loc[name, "value"]


def config_only(path: Path, **fields: object) -> str:
    path.write_text(json.dumps(fields))
    return str(path)


def test_every_layout_is_counted_as_its_real_parameters_are(model_folder):
    anatomy = hs.anatomy(str(model_folder))
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    parameters = [(n, p) for n, p in model.named_parameters() if ".0." in n and "norm" not in n]
    for part, is_part in (("attention", "att"), ("feed-forward", "mlp")):
        for kind, plural in (("weight", "weights"), ("bias", "biases")):
            size = sum(p.numel() for n, p in parameters if is_part in n and n.endswith(kind))
            assert size_of(anatomy, f"{part} {plural}") == size
    assert size_of(anatomy, "embedding") == model.get_input_embeddings().weight.numel()
    assert size_of(anatomy, "total") == sum(p.numel() for p in model.parameters())


GPT2 = {"model_type": "gpt2"}  # defaults of transformers are those of GPT-2 small
GPT2_XL = GPT2 | {"n_layer": 48, "n_head": 25, "n_embd": 1600}
GPT3 = GPT2 | {"n_layer": 96, "n_head": 96, "n_embd": 12_288, "n_positions": 2048}
LLAMA_7B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "max_position_embeddings": 2048,
    "vocab_size": 32_000,
}
LLAMA_2_70B = LLAMA_7B | {
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
    "intermediate_size": 28_672,
}


@pytest.mark.parametrize(
    ("fields", "total", "attention", "feed_forward"),
    [
        (GPT2, 124_439_808, 2_359_296, 4_718_592),
        (GPT2_XL, 1_557_611_200, 4 * 1600**2, 8 * 1600**2),
        # W_Q, W_K, W_V and W_O have 14,495,514,624 entries each over all layers
        (GPT3, 174_604_259_328, 4 * 14_495_514_624 // 96, 2 * 57_982_058_496 // 96),
        (LLAMA_7B, 6_738_415_616, 4 * 4096**2, 3 * 4096 * 11_008),
        (LLAMA_2_70B, 68_976_648_192, 18 * 8192 * 1024, 3 * 8192 * 28_672),
    ],
    ids=["gpt2", "gpt2-xl", "gpt3", "llama-7b", "llama-2-70b"],
)
def test_released_models_have_the_known_numbers_from_their_configuration(
    fields, total, attention, feed_forward, tmp_path
):
    """Counts of transformers on the hub; Brown et al. 2020, table 2.1, state 175.0B for GPT-3."""
    result = hs.anatomy(config_only(tmp_path / "config.json", **fields))
    rows = parameters(result)
    assert rows.loc["attention weights", "value"] == attention
    assert rows.loc["feed-forward weights", "value"] == feed_forward
    assert rows.loc["total", "value"] == total


def test_a_real_gguf_has_the_parameters_of_its_card(smollm2):
    """SmolLM2-135M: 134,515,008 parameters, as its model card says."""
    anatomy = hs.anatomy(smollm2)
    assert size_of(anatomy, "total") == 134_515_008
    assert (dimension(anatomy, "heads"), dimension(anatomy, "key_value_heads")) == (9, 3)


def test_the_cache_of_llama2_70b_is_10_grouped_1_and_a_quarter_gib(tmp_path):
    path = config_only(tmp_path / "config.json", **LLAMA_2_70B)
    found = hs.anatomy(path, context=4096)
    cache = found.table.query("section == 'cache'").set_index("name")["value"]
    assert cache.to_dict() == {"MHA": 10 * GIB, "own": 1.25 * GIB, "MQA": GIB * 5 // 32}
    assert hs.anatomy(path).values["context"] == 2048  # the model's longest input


def test_the_cache_grows_with_the_batch(tmp_path):
    path = config_only(tmp_path / "config.json", **LLAMA_2_70B)
    one, eight = (hs.anatomy(path, batch=batch).table["value"] for batch in (1, 8))
    is_cache = hs.anatomy(path).table["section"] == "cache"
    assert eight[is_cache].tolist() == (8 * one[is_cache]).tolist()
    assert eight[~is_cache].equals(one[~is_cache])


@pytest.mark.parametrize(
    ("key_value_heads", "kind"), [(64, "MHA"), (8, "GQA"), (2, "GQA"), (1, "MQA")]
)
def test_how_heads_share_keys_has_a_name(key_value_heads, kind, tmp_path):
    fields = LLAMA_2_70B | {"num_key_value_heads": key_value_heads}
    found = hs.anatomy(config_only(tmp_path / "config.json", **fields))
    assert found.values["attention"] == kind
    assert kind in found.title


@pytest.mark.parametrize("heads", [1, 4, 16])
def test_parameters_do_not_depend_on_the_number_of_heads(heads, tmp_path):
    """Counted in torch's own multi-head attention of that width, without biases."""
    fields = LLAMA_7B | {"hidden_size": 64, "num_attention_heads": heads}
    found = hs.anatomy(config_only(tmp_path / "config.json", **fields))
    rows = found.table.query("section == 'head count'")["value"].tolist()
    attention = torch.nn.MultiheadAttention(64, heads, bias=False)
    wanted = attention.in_proj_weight.numel()
    assert rows == [wanted, wanted, attention.out_proj.weight.numel()]
    assert rows[2] * 3 == wanted


@pytest.mark.parametrize("model_type", ["gpt2", "gpt_neo", "gptj", "bloom", "distilbert", "mpt"])
def test_the_feed_forward_width_is_that_of_the_built_model(model_type, tmp_path):
    """Defaults of these configurations leave it out, or have another name for it."""
    widths = {
        "gpt2": 3072,
        "gpt_neo": 8192,
        "gptj": 16384,
        "bloom": 256,
        "distilbert": 3072,
        "mpt": 8192,
    }
    found = hs.anatomy(config_only(tmp_path / "config.json", model_type=model_type))
    assert dimension(found, "d_ff") == widths[model_type]


def test_known_shapes_have_published_sizes():
    """Cache sizes at 4,096 tokens; Ainslie et al. 2023 share each key of Llama 2 70B by 8 heads."""
    table = hs.shapes(context=4096).table.set_index("model")
    assert table.loc["Llama 2 70B", ["cache", "cache_mha"]].tolist() == [1.25 * GIB, 10 * GIB]
    assert table.loc["Llama 2 7B", "cache"] == 2 * GIB
    assert table.loc["GPT-2 small", "cache"] == 2 * 12 * 768 * 4096 * 2
    assert table["attention"].value_counts().to_dict() == {"MHA": 14, "GQA": 13, "MQA": 2}
    # of these families all heads together are as wide as the residual stream
    plain = table[table.index.str.contains("GPT|Pythia|Llama")]
    assert (plain["heads"] * plain["d_head"]).equals(plain["d_model"])
    twice = hs.shapes(context=4096, batch=2).table.set_index("model")
    assert twice["cache"].equals(2 * table["cache"])


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("mamba", "num_attention_heads"),
        ("deepseek_v3", "kv_lora_rank"),
        ("t5", "t5"),
    ],
)
def test_a_model_without_countable_attention_is_refused(model_type, message, tmp_path):
    with pytest.raises(hs.HeadscopeError, match=message):
        hs.anatomy(config_only(tmp_path / "c.json", model_type=model_type))


def test_a_hub_model_needs_only_its_configuration(gpt2_folder, tmp_path, monkeypatch):
    requested = []
    shutil.copy(gpt2_folder / "config.json", tmp_path)

    def download(name, revision, files):
        requested.append(tuple(files))
        return tmp_path, "abc"

    monkeypatch.setattr(locate, "download", download)
    hs.anatomy("someone/small")
    assert requested == [("config.json",)]
