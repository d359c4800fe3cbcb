"""A model of which some layers are read: the same rows, and no layer is run after the last."""

from __future__ import annotations

import pytest
import torch

from headscope.corpus.shipped import mini_folder
from headscope.models.engines.engine import full_tile
from headscope.models.layout.modules import attention_modules
from headscope.models.load import Model, load_model
from headscope.models.some_layers import with_some_layers

TOKENS = torch.arange(12)[None] + 40


@pytest.fixture(scope="module", params=["fused", "lens"])
def model(request) -> Model:
    return load_model(str(mini_folder()), engine=request.param)


def rows_of(model: Model, layers: int | None = None) -> dict[int, torch.Tensor]:
    rows: dict[int, torch.Tensor] = {}

    def on_layer(layer, tiles):
        (rows[layer],) = (tile.clone() for tile in tiles)

    model.engine.run(TOKENS, [full_tile(*TOKENS.shape)], on_layer, layers)
    return rows


def test_the_layers_that_are_named_show_what_they_show_in_the_whole_model(model):
    whole, some = rows_of(model), rows_of(with_some_layers(model, {3, 1}))
    assert sorted(some) == [1, 3]
    assert sorted(whole) == [0, 1, 2, 3, 4, 5]
    for layer, rows in some.items():
        torch.testing.assert_close(rows, whole[layer], rtol=0, atol=0)


def test_a_reading_that_ends_earlier_ends_there(model):
    assert sorted(rows_of(with_some_layers(model, {1, 3}), 3)) == [1]


def test_no_layer_is_run_after_the_last_of_them():
    model = load_model(str(mini_folder()), engine="fused")
    run: list[int] = []
    for number, module in enumerate(attention_modules(model.engine.network)):
        module.register_forward_pre_hook(lambda *_, number=number: run.append(number))
    rows_of(with_some_layers(model, {2}))
    assert run == [0, 1, 2]
    rows_of(model)
    assert run[3:] == [0, 1, 2, 3, 4, 5]


def test_its_layers_keep_their_numbers(model):
    some = with_some_layers(model, {4, 2})
    assert some.attention_layers == (2, 4)
    assert (some.layers, some.heads) == (2, model.heads)
    assert len(some.engine.matrices()) == len(model.engine.matrices())
