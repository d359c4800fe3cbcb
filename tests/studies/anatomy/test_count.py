"""Formulas against counts, and both against what transformers itself builds and stores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.studies.anatomy import parameter_count
from headscope.studies.anatomy.anatomy_result import Anatomy
from headscope.studies.anatomy.anatomy_view import anatomy_lines
from headscope.studies.anatomy.parameter_count import find_source
from tests.helpers.models import edit_config
from tests.models.tiny import tiny_config

GPT2_SMALL = {"model_type": "gpt2"}  # the defaults of transformers are GPT-2 small
HEADS, D_MODEL, D_HEAD = 4, 32, 8


def counted(anatomy: Anatomy, part: str) -> int:
    (row,) = (row for row in anatomy.parameter_rows if row.part == part)
    assert row.counted is not None
    return row.counted


def config_only(path: Path, **fields: object) -> str:
    path.write_text(json.dumps(fields))
    return str(path)


def printed(anatomy: Anatomy) -> str:
    from rich.console import Console

    console = Console(width=200, markup=False)
    with console.capture() as capture:
        console.print(anatomy_lines(anatomy), highlight=False)
    return capture.get()


def attention_of(model: torch.nn.Module) -> dict[str, list[torch.Tensor]]:
    """Weight and bias of a first layer's Q, K, V and O, split as each layout's own code splits."""
    if hasattr(model, "transformer"):
        own = model.transformer.h[0].attn
        weights = own.c_attn.weight.split(D_MODEL, dim=1)
        biases = own.c_attn.bias.split(D_MODEL)
        parts = dict(zip("QKV", map(list, zip(weights, biases, strict=True)), strict=True))
        return parts | {"O": [own.c_proj.weight, own.c_proj.bias]}
    if hasattr(model, "gpt_neox"):
        own = model.gpt_neox.layers[0].attention
        weight = own.query_key_value.weight.view(HEADS, 3, D_HEAD, D_MODEL)
        bias = own.query_key_value.bias.view(HEADS, 3, D_HEAD)
        parts = {name: [weight[:, i], bias[:, i]] for i, name in enumerate("QKV")}
        return parts | {"O": [own.dense.weight, own.dense.bias]}
    own = model.model.layers[0].self_attn
    return {name: [getattr(own, f"{name.lower()}_proj").weight] for name in "QKVO"}


def test_every_layout_is_counted_as_its_real_parameters_are(model_folder):
    anatomy = hs.anatomy(str(model_folder))
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    for name, (weight, *bias) in attention_of(model).items():
        assert counted(anatomy, f"W_{name}") == weight.numel()
        assert counted(anatomy, f"b_{name}") == sum(each.numel() for each in bias)
    mlp = [(n, p) for n, p in model.named_parameters() if ".0.mlp." in n]
    for kind in ("weight", "bias"):
        size = sum(p.numel() for n, p in mlp if n.endswith(kind))
        plural = {"weight": "weights", "bias": "biases"}[kind]
        assert counted(anatomy, f"feed-forward {plural}") == size
    first = sum(p.numel() for n, p in model.named_parameters() if ".0." in n)
    assert counted(anatomy, "layer") == first
    assert counted(anatomy, "embedding") == model.get_input_embeddings().weight.numel()
    assert counted(anatomy, "total") == sum(p.numel() for p in model.parameters())
    assert anatomy.agrees
    assert anatomy.parameters["agrees"].all()


def test_the_grouped_layout_has_half_the_keys_and_three_matrices(tmp_path):
    fields = {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 64,
              "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 50}  # fmt: skip
    anatomy = hs.anatomy(config_only(tmp_path / "c.json", model_type="llama", **fields))
    assert counted(anatomy, "W_K") == counted(anatomy, "W_Q") // 2 == 64 * 32
    assert counted(anatomy, "feed-forward weights") == 3 * 64 * 96
    assert "3 × d_model × d_ff" in printed(anatomy)


def test_gpt2_small_has_the_known_numbers_from_its_configuration_alone(tmp_path):
    anatomy = hs.anatomy(config_only(tmp_path / "config.json", **GPT2_SMALL))
    rows = anatomy.parameters.set_index("part")
    for column in ("by_formula", "counted"):
        assert rows.loc["attention weights", column] == 2_359_296
        assert rows.loc["feed-forward weights", column] == 4_718_592
        assert rows.loc["layer", column] == 7_087_872
        assert rows.loc["total", column] == 124_439_808
    assert "no weights here" in anatomy.counted_from


def test_a_folder_with_only_a_configuration_is_counted_like_one_with_weights(
    model_folder, tmp_path
):
    shutil.copy(model_folder / "config.json", tmp_path)
    alone, whole = hs.anatomy(str(tmp_path)), hs.anatomy(str(model_folder))
    assert alone.parameter_rows == whole.parameter_rows
    assert alone.cache_rows == whole.cache_rows
    assert alone.counted_from != whole.counted_from


@pytest.mark.parametrize(
    "fields",
    [
        {"model_type": "gpt2", "n_inner": 100, "tie_word_embeddings": False},
        {"model_type": "gpt_neox", "attention_bias": True},
        {"model_type": "gpt_neox", "attention_bias": False},
        {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "head_dim": 24},
        {"model_type": "llama", "num_key_value_heads": 1, "tie_word_embeddings": True},
        {"model_type": "mistral", "num_key_value_heads": 2, "head_dim": 24},
        {"model_type": "qwen2", "num_key_value_heads": 2},
    ],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
def test_every_formula_in_the_table_is_what_transformers_builds(fields, tmp_path):
    size = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 70,
            "max_position_embeddings": 40}  # fmt: skip
    if fields["model_type"] != "gpt2":
        size["intermediate_size"] = 90
    anatomy = hs.anatomy(config_only(tmp_path / "c.json", **size, **fields))
    assert all(row.agrees for row in anatomy.parameter_rows), printed(anatomy)


LAYOUTS = ("bert", "codegen", "distilbert", "electra", "falcon", "gpt_bigcode", "gpt_neo", "gpt_neox",
           "gptj", "modernbert", "mpt", "opt", "phi", "phi3", "starcoder2")  # fmt: skip


@pytest.mark.parametrize("model_type", LAYOUTS)
def test_the_projections_of_layouts_with_other_names_are_counted(model_type, tmp_path):
    config = tiny_config(model_type)
    anatomy = hs.anatomy(config_only(tmp_path / "c.json", **config.to_dict()))
    keys = anatomy.dimensions.key_value_heads
    sizes = {"W_Q": 32 * 32, "W_K": 8 * keys * 32, "W_V": 8 * keys * 32, "W_O": 32 * 32}
    assert {name: counted(anatomy, name) for name in sizes} == sizes


def changed(folder: Path, target: Path, change) -> str:
    """A copy of a model's folder with other tensors."""
    shutil.copytree(folder, target)
    tensors = load_file(target / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return str(target)


@pytest.fixture
def seen_with(gpt2_folder, monkeypatch) -> Callable[..., Anatomy]:
    """What is said of a model whose tensors have other names or shapes than its configuration
    says; a file like that is refused before."""

    def anatomy(change: Callable[[dict[str, tuple[int, ...]]], None]) -> Anatomy:
        source = find_source(str(gpt2_folder))
        change(shapes := dict(source.shapes))
        found = replace(source, shapes=shapes)
        monkeypatch.setattr(parameter_count, "find_source", lambda *_, **__: found)
        return hs.anatomy(str(gpt2_folder))

    return anatomy


def test_a_tensor_of_another_size_is_seen_in_its_layer(seen_with):
    def shrink(shapes):
        shapes["transformer.h.1.mlp.c_fc.weight"] = (32, 100)

    anatomy = seen_with(shrink)
    found = {r.layers: r for r in anatomy.parameter_rows if r.part == "feed-forward weights"}
    assert (found["0"].counted, found["0"].agrees) == (2 * 32 * 128, True)
    assert (found["1"].counted, found["1"].agrees) == (32 * 100 + 32 * 128, False)
    assert not anatomy.agrees
    text = printed(anatomy)
    assert "formula and tensors DISAGREE on: feed-forward weights, layer, all layers, total" in text
    (line,) = (line for line in text.splitlines() if "feed-forward weights, in layers 1" in line)
    assert line.split()[-3:] == ["8,192", "7,296", "NO"]


def test_a_configuration_that_says_more_than_the_tensors_hold_is_seen(seen_with):
    def cut(shapes):
        shapes["transformer.wte.weight"] = (7, 32)
        for key in [key for key in shapes if ".h.1." in key]:
            del shapes[key]

    anatomy = seen_with(cut)
    apart = [row.part for row in anatomy.parameter_rows if row.agrees is False]
    assert apart == ["all layers", "embedding", "total"]
    assert "the configuration says 2 layers, the tensors are of 1" in anatomy.notes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_layer": 5}, "36 tensors are not in the weights, and transformers would draw them"),
        ({"n_layer": 1}, "12 tensors are of a layer that the configuration leaves out"),
        ({"n_layer": -1}, "gives n_layer as -1; it should be a whole number of at least 1"),
        ({"vocab_size": 999}, "wte.weight is .* × 32 in the file and 999 × 32 by the config"),
    ],
)
def test_weights_that_do_not_fit_the_configuration_are_refused(
    gpt2_folder, tmp_path, changes, message
):
    folder = Path(shutil.copytree(gpt2_folder, tmp_path / "m"))
    edit_config(folder, **changes)
    with pytest.raises(hs.HeadscopeError, match=message):
        hs.anatomy(str(folder))


def test_stored_masks_and_a_tied_tensor_stored_twice_are_no_parameters(gpt2_folder, tmp_path):
    def add(tensors):
        tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 256, 256)
        tensors["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
        tensors["transformer.position_ids"] = torch.arange(8)[None]
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()

    plain, more = hs.anatomy(str(gpt2_folder)), changed(gpt2_folder, tmp_path / "m", add)
    anatomy = hs.anatomy(more)
    assert anatomy.parameter_rows == plain.parameter_rows
    (note,) = set(anatomy.notes) - set(plain.notes)
    assert note.startswith("not counted: ")
    assert "lm_head.weight" in note
    assert "transformer.h.0.attn.masked_bias" in note
    assert "transformer.position_ids" in note


def test_names_without_a_prefix_are_the_same_parts(gpt2_folder, tmp_path):
    """The files of GPT-2 on the hub are written so."""

    def strip(tensors):
        for key in list(tensors):
            tensors[key.removeprefix("transformer.")] = tensors.pop(key)

    bare = hs.anatomy(changed(gpt2_folder, tmp_path / "m", strip))
    assert bare.parameter_rows == hs.anatomy(str(gpt2_folder)).parameter_rows


def test_an_unknown_name_is_said_and_counted_in_the_totals_alone(seen_with):
    def rename(tensors):
        for layer in (0, 1):
            for kind in ("weight", "bias"):
                old = f"transformer.h.{layer}.attn.c_attn.{kind}"
                tensors[old.replace("c_attn", "mystery")] = tensors.pop(old)

    anatomy = seen_with(rename)
    rows = {row.part: row for row in anatomy.parameter_rows}
    for part in ("W_Q", "b_K", "attention weights"):
        assert rows[part].counted is None
        assert rows[part].agrees is None
    assert rows["W_O"].agrees
    assert rows["total"].agrees
    (note,) = (note for note in anatomy.notes if "not recognised" in note)
    assert note.endswith("transformer.h.N.attn.mystery.bias, transformer.h.N.attn.mystery.weight")


def test_an_embedding_of_an_unknown_name_is_not_called_absent(seen_with):
    def rename(tensors):
        tensors["transformer.mystery.weight"] = tensors.pop("transformer.wte.weight")

    anatomy = seen_with(rename)
    rows = {row.part: row for row in anatomy.parameter_rows}
    assert rows["embedding"].counted is None
    assert rows["total"].agrees
    (note,) = (note for note in anatomy.notes if "not recognised" in note)
    assert note.endswith(": transformer.mystery.weight")
    # none is expected here, so that none is what was counted
    assert rows["unembedding"].counted == 0


def test_a_layout_without_a_row_in_the_table_is_counted_and_said_to_have_no_formula(tmp_path):
    fields = {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "vocab_size": 50}
    anatomy = hs.anatomy(config_only(tmp_path / "c.json", model_type="gptj", **fields))
    rows = {row.part: row for row in anatomy.parameter_rows}
    assert rows["W_Q"].agrees
    assert rows["feed-forward weights"].by_formula is None
    assert rows["feed-forward weights"].counted == 2 * 64 * 256
    assert rows["unembedding"].counted == 64 * 50 + 50  # GPT-J has a bias here
    assert any("gptj: no formula is known for its biases" in note for note in anatomy.notes)
    assert "feed-forward weights  ?" in printed(anatomy)


def test_layers_without_attention_are_named(tmp_path):
    fields = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
              "num_hidden_layers": 4, "intermediate_size": 96, "vocab_size": 50,
              "attn_layer_period": 4, "attn_layer_offset": 2, "num_experts": 2}  # fmt: skip
    anatomy = hs.anatomy(config_only(tmp_path / "c.json", model_type="jamba", **fields))
    assert any(
        note.startswith("no attention was recognised in layers 0-1, 3;") for note in anatomy.notes
    )
    assert "W_Q, in layers 0-1, 3" in printed(anatomy)


def test_one_shared_key_value_head_in_a_fused_tensor(tmp_path):
    fields = {"n_embd": 64, "n_head": 4, "n_layer": 2, "multi_query": True}
    anatomy = hs.anatomy(config_only(tmp_path / "c.json", model_type="gpt_bigcode", **fields))
    assert anatomy.dimensions.key_value_heads == 1
    assert counted(anatomy, "W_Q") == 64 * 64
    assert counted(anatomy, "W_K") == counted(anatomy, "W_V") == 64 * 16


def test_weights_in_several_files_are_counted_together(gpt2_folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(gpt2_folder)
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 1
    anatomy = hs.anatomy(str(tmp_path))
    assert anatomy.parameter_rows == hs.anatomy(str(gpt2_folder)).parameter_rows
    assert anatomy.counted_from == f"counted from {len(files)} safetensors files"
    files[1].unlink()
    with pytest.raises(hs.HeadscopeError, match=rf"1 of {len(files)} weight files are missing"):
        hs.anatomy(str(tmp_path))
    assert hs.anatomy(str(tmp_path / "config.json")).agrees


def test_a_real_gguf_is_counted_from_its_own_tensors(smollm2):
    """SmolLM2-135M: 134,515,008 parameters, as its model card says."""
    anatomy = hs.anatomy(smollm2)
    assert counted(anatomy, "total") == 134_515_008
    assert (anatomy.dimensions.heads, anatomy.dimensions.key_value_heads) == (9, 3)
    assert all(row.agrees for row in anatomy.parameter_rows)


def test_shapes_of_a_gguf_are_in_elements(tmp_path):
    import gguf
    import numpy as np

    from headscope.models.gguf_files import gguf_shapes

    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(1)
    writer.add_context_length(8)
    writer.add_embedding_length(6)
    writer.add_feed_forward_length(6)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    data = np.zeros((6, 64), dtype=np.float32)
    quantised = gguf.quants.quantize(data, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("a", data)
    writer.add_tensor("b", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert gguf_shapes(tmp_path / "m.gguf") == {"a": (64, 6), "b": (64, 6)}
