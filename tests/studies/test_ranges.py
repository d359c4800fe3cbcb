"""Range of heads: attention of long windows as transformers has it, and heads of a known range."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.causal.kept_keys import AttentionTile
from headscope.models.engines.attention import CleanKeys
from headscope.models.engines.scores import PLAIN
from headscope.models.load import load_model
from headscope.studies.ranges import (
    COPY,
    FIRST,
    WindowOutputs,
    distances_in,
    induction_masses,
    read_rows,
    with_copies,
)
from tests.models.every_layout import attention_of, own_network, save_tiny

ROPE = {"rope_theta": 10_000.0}
YARN = {"rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 128, **ROPE}
LONG = {"max_position_embeddings": 8192}
ONE_HEAD = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
MODELS = {
    "llama at 8,192": ("llama", 8192, ONE_HEAD),
    "yarn beyond its training window": ("llama", 1024, {"rope_parameters": YARN}),
    "windows": ("gemma3_text", 1024, {}),
    "windows of all layers": ("mistral", 1024, {}),
    "chunks": ("llama4_text", 1024, {}),
    "no positions in some layers": ("smollm3", 1024, {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_long_windows_are_those_of_eager_attention(name, tokenizer, tmp_path):
    model_type, length, more = MODELS[name]
    save_tiny(model_type, tokenizer, tmp_path, **LONG, **more)
    model = load_model(str(tmp_path))
    tokens = np.random.default_rng(0).integers(1, 90, length)
    queries = np.array([3, length // 2, length - 2])
    found: dict[int, torch.Tensor] = {}

    def take(tile: AttentionTile) -> None:
        found[tile.layer] = tile.attention.transpose(0, 1)

    read_rows(model, tokens, queries, take)
    expected = attention_of(own_network(tmp_path), torch.from_numpy(tokens)[None])
    assert sorted(found) == list(model.attention_layers)
    for layer, pattern in zip(sorted(found), expected, strict=True):
        assert torch.allclose(found[layer], pattern[0][:, queries], atol=1e-4)


def tile_of(attention: np.ndarray, queries: list[int], value: torch.Tensor) -> AttentionTile:
    rows = torch.from_numpy(attention).float()
    return AttentionTile(0, torch.tensor(queries), rows, CleanKeys(value, value, 1.0, PLAIN))


class OneLayer:
    """What `WindowOutputs` knows of a model."""

    attention_layers = (0,)

    def __init__(self, heads: int) -> None:
        self.heads = heads


def test_the_window_of_a_head_is_what_it_looks_back():
    """Heads that attend evenly to their last 1, 40, 500 tokens, to all, and to the first token."""
    length, queries = 2048, [1500, 2047]
    spans = [1, 40, 500, length, None]
    attention = np.zeros((len(queries), len(spans), length))
    for item, query in enumerate(queries):
        for head, span in enumerate(spans):
            if span is None:
                attention[item, head, 0] = 1
            else:
                keys = slice(max(0, query - span + 1), query + 1)
                attention[item, head, keys] = 1
        attention[item] /= attention[item].sum(-1, keepdims=True)
    # values that differ from token to token, so that no part stands for the whole
    value = torch.from_numpy(np.random.default_rng(0).normal(size=(len(spans), length, 8))).float()
    kept = WindowOutputs(OneLayer(len(spans)), length)
    kept.add(tile_of(attention, queries, value))
    assert kept.window(kept.shares())[0].tolist() == [16, 64, 512, 2048, 16]
    of_all = FIRST * (1 / 1501 + 1 / 2048) / 2
    assert kept.first()[0].tolist() == pytest.approx([0, 0, 0, of_all, 1])


def test_the_share_that_a_window_keeps_is_the_slow_loops():
    rng = np.random.default_rng(0)
    length, queries = 64, [40, 63]
    attention = rng.random((2, 3, length)) ** 4
    for item, query in enumerate(queries):
        attention[item, :, query + 1 :] = 0
    attention /= attention.sum(-1, keepdims=True)
    attention[:, 0] *= 0.5  # a learned sink takes the rest
    value = torch.from_numpy(rng.normal(size=(3, length, 4))).float()
    kept = WindowOutputs(OneLayer(3), length)  # type: ignore[arg-type]
    kept.add(tile_of(attention, queries, value))
    for head in range(3):
        lost = norm = 0.0
        for item, query in enumerate(queries):
            row, values = attention[item, head], value[head].numpy()
            keys = [*range(FIRST), *range(query - 31, query + 1)]
            total = row[keys].sum() + 1 - row.sum()
            z = row @ values
            lost += np.linalg.norm(z - (row[keys] / total) @ values[keys])
            norm += np.linalg.norm(z)
        assert kept.shares()[1, 0, head] == pytest.approx(1 - lost / norm, abs=1e-5)


def test_passages_come_again_at_every_distance_and_none_is_overwritten():
    tokens = np.arange(8192)
    second = with_copies(tokens)
    assert sorted(second) == distances_in(8192) == [64, 128, 256, 512, 1024, 2048, 4096]
    for distance, start in second.items():
        copy = slice(start, start + COPY)
        first = np.arange(start - distance, start - distance + COPY)
        assert tokens[copy].tolist() == first.tolist() == tokens[first].tolist()


@pytest.fixture(scope="module")
def windowed(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("windowed")
    save_tiny("mistral", tokenizer, folder, sliding_window=500, max_position_embeddings=2048)
    return hs.load_model(str(folder))


def test_a_head_with_a_window_of_500_tokens_has_a_range_of_500(windowed):
    result = hs.ranges(windowed, "gum", length=2048, windows=1, queries=4)
    assert result.table["window"].max() <= 512
    curves = result.values["curves"]
    far = [p for p in curves if p["curve"].startswith("induction") and p["tokens"] >= 512]
    near = [p for p in curves if p["curve"].startswith("induction") and p["tokens"] < 500]
    assert all(point["share"] == 0 for point in far)
    assert all(point["share"] > 0 for point in near)


def test_induction_is_the_mass_on_the_token_after_the_earlier_copy(windowed):
    tokens = np.random.default_rng(1).integers(1, 90, 300)
    found = induction_masses(windowed, tokens)
    start = with_copies(tokens.copy())[64]
    queries = np.arange(start + COPY // 4, start + COPY - 1)
    network = windowed.engine.network
    network.set_attn_implementation("eager")
    pattern = attention_of(network, torch.from_numpy(tokens)[None])[0][0]
    expected = pattern[:, queries, queries - 63].mean(-1)
    assert np.allclose(found[0, 0], expected, atol=1e-5)
