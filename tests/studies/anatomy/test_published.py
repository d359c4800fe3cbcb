"""Published shapes and caches against the numbers that papers and model cards give."""

from __future__ import annotations

import pytest

import headscope as hs
from headscope.studies.anatomy.anatomy_dimensions import cache_sizes
from headscope.studies.anatomy.anatomy_view import human_bytes
from headscope.studies.anatomy.published import SHAPES, find_shape, published_shapes

GIB = 2**30


@pytest.fixture(scope="module")
def table():
    return published_shapes().set_index("model")


def test_totals_are_those_of_the_released_models(table):
    """As transformers counts them on the hub; Brown et al. 2020 give 175.0B for GPT-3."""
    assert table.loc["gpt-2-s", "parameters"] == 124_439_808
    assert table.loc["gpt-2-m", "parameters"] == 354_823_168
    assert table.loc["gpt-2-l", "parameters"] == 774_030_080
    assert table.loc["gpt-2-xl", "parameters"] == 1_557_611_200
    assert table.loc["llama-7b", "parameters"] == 6_738_415_616
    assert table.loc["llama-2-70b", "parameters"] == 68_976_648_192
    assert table.loc["gpt-3-175b", "parameters"] == pytest.approx(175.0e9, rel=0.003)


def test_gpt3_has_the_known_shape_and_weights(table):
    row = table.loc["gpt-3-175b"]
    assert (row["layers"], row["heads"], row["d_model"], row["d_head"]) == (96, 96, 12_288, 128)
    assert row["context"] == 2048
    # each of W_Q, W_K, W_V and W_O has 14,495,514,624 entries over all layers
    assert row["attention_weights_per_layer"] * 96 == 4 * 14_495_514_624 == 57_982_058_496
    # and up and down projections 57,982,058,496 each
    assert row["feed_forward_weights_per_layer"] * 96 == 2 * 57_982_058_496


def test_a_layer_of_gpt2_small_has_the_known_weights(table):
    assert table.loc["gpt-2-s", "attention_weights_per_layer"] == 2_359_296
    assert table.loc["gpt-2-s", "feed_forward_weights_per_layer"] == 4_718_592


def test_the_cache_of_llama2_70b_is_80_grouped_10_single_one_and_a_quarter_gib(table):
    row = table.loc["llama-2-70b"]
    assert row["cache_bytes_full"] == 80 * GIB
    assert row["cache_bytes_own"] == 10 * GIB
    assert row["cache_bytes_single"] == 1.25 * GIB
    assert (row["cache_context"], row["cache_batch"], row["cache_dtype"]) == (4096, 8, "float16")


def test_models_without_groups_keep_the_full_cache(table):
    alone = table[table["heads"] == table["key_value_heads"]]
    assert len(alone) == 6
    assert (alone["cache_bytes_own"] == alone["cache_bytes_full"]).all()
    # a token of GPT-3 takes 4.5 MiB in float16
    assert table.loc["gpt-3-175b", "cache_bytes_full"] == 4.5 * 2**20 * 4096 * 8


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.key)
def test_what_transformers_builds_for_a_published_shape_agrees_with_the_formula(shape):
    anatomy = hs.anatomy(shape.key)
    assert all(row.agrees for row in anatomy.parameter_rows)
    assert anatomy.dimensions == shape.dimensions
    assert shape.source in anatomy.counted_from
    assert anatomy.context == shape.dimensions.context


def test_every_shape_has_a_source_and_a_name_of_its_own():
    assert all(shape.source for shape in SHAPES)
    assert len({shape.key for shape in SHAPES}) == len(SHAPES) == 7


def test_a_published_shape_is_found_however_its_name_is_written():
    assert find_shape("GPT-2 XL") is find_shape("gpt-2-xl") is not None
    assert find_shape("gpt2-xl") is None, "this is the name of a model on the hub"


def test_what_lies_on_disk_comes_before_a_published_shape(gpt2_folder, tmp_path, monkeypatch):
    (tmp_path / "gpt-2-s").symlink_to(gpt2_folder)
    monkeypatch.chdir(tmp_path)
    assert hs.anatomy("gpt-2-s").dimensions.layers == 2


def test_the_cache_grows_with_everything_that_it_keeps():
    d = SHAPES[0].dimensions
    base = cache_sizes(d, context=10, batch=3, dtype="float16")
    assert [size.key_value_heads for size in base] == [12, 12, 1]
    # keys and values, 12 layers, 12 heads of 64, 10 tokens, 3 sequences, 2 bytes
    assert base[0].bytes == 2 * 12 * 12 * 64 * 10 * 3 * 2
    assert base[0].bytes_per_token == 2 * 12 * 12 * 64 * 2
    assert base[2].bytes * 12 == base[0].bytes
    assert cache_sizes(d, context=10, batch=3, dtype="float32")[0].bytes == 2 * base[0].bytes
    assert cache_sizes(d, context=10, batch=3, dtype="bfloat16") == base


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (5 * 2**28, "1.25 GiB"), (80 * GIB, "80 GiB"),
     (2**70, "1.049e+06 PiB")],
)  # fmt: skip
def test_bytes_are_written_in_powers_of_1024(size, text):
    assert human_bytes(size) == text
