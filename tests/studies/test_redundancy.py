"""Distances, similarities and map of heads, against loops, scipy, closed forms and transformers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon, pdist, squareform
from scipy.stats import special_ortho_group

import headscope as hs
from headscope.measure.study_windows import evenly
from headscope.models.layout.projections import attention_modules
from headscope.models.load import load_model
from headscope.stimuli.natural_text import TextWindows
from headscope.studies.redundancy import (
    CKA,
    LayerInputs,
    cluster_names,
    divergence_sums,
    head_divergences,
    linear_cka,
    plane,
)
from tests.helpers.models import eager_attention, own_code


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """Rows that sum to 1, some keys with no attention at all."""
    rng = np.random.default_rng(seed)
    rows = rng.random(shape) ** 6 * (rng.random(shape) < 0.7)
    rows[..., 0] += 1e-3
    return rows / rows.sum(-1, keepdims=True)


def by_definition(p: np.ndarray, q: np.ndarray) -> float:
    total = 0.0
    for a, b in zip(p.tolist(), q.tolist(), strict=True):
        middle = (a + b) / 2
        total += a / 2 * math.log2(a / middle) if a else 0.0
        total += b / 2 * math.log2(b / middle) if b else 0.0
    return total


def test_divergences_are_those_of_the_definition_pair_by_pair():
    rows = drawn(6, 40)
    found = squareform(head_divergences(torch.from_numpy(rows)))
    for i in range(6):
        for j in range(6):
            assert found[i, j] == pytest.approx(by_definition(rows[i], rows[j]), abs=1e-12)
            assert found[i, j] == found[j, i]


def test_sums_add_queries_and_read_no_later_key():
    patterns = np.tril(drawn(4, 12, 12, seed=3))
    patterns /= patterns.sum(-1, keepdims=True)
    queries = np.array([2, 7, 11])
    slow = [
        sum(by_definition(patterns[i, q], patterns[j, q]) for q in queries)
        for i in range(4)
        for j in range(i + 1, 4)
    ]
    sampled = torch.from_numpy(patterns[:, queries])
    before = sampled.clone()
    np.testing.assert_allclose(divergence_sums(sampled, queries), slow, atol=1e-12)
    assert torch.equal(sampled, before)


def test_the_map_gives_back_the_distances_of_points_in_a_plane():
    points = np.random.default_rng(4).normal(size=(15, 2)) * [3, 1]
    found = plane(squareform(pdist(points)))
    np.testing.assert_allclose(pdist(found), pdist(points), atol=1e-9)
    assert found[:, 0].var() > found[:, 1].var()
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-12)


def test_cka_is_one_for_a_rotated_and_scaled_head_and_small_for_an_independent_one():
    width, tokens = 8, 1000
    rng = np.random.default_rng(6)
    weights = rng.normal(size=(width, 2 * width))
    weights[:, width:] = 0
    turned = 3 * special_ortho_group.rvs(width, random_state=1) @ weights
    heads = torch.from_numpy(np.stack([weights, weights, turned, np.eye(2 * width)[width:]]))
    inputs = rng.normal(size=(tokens, 2 * width))
    found = linear_cka(heads, torch.from_numpy(np.cov(inputs.T))).numpy()
    np.testing.assert_allclose(found[:3, :3], 1)
    # of two independent white heads: width / (width + tokens)
    white = torch.eye(2 * width).double().view(2, width, -1)
    found = linear_cka(white, torch.from_numpy(np.cov(inputs.T))).numpy()
    assert found[0, 1] == pytest.approx(width / (width + tokens), rel=0.4)


def test_heads_of_a_group_have_the_similarity_of_their_key_head():
    keys = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]], [[1.0, 1.0]]]).double()
    layer = LayerInputs([keys.repeat_interleave(2, 0), keys, keys[:1]], torch.eye(3).double())
    found = layer.similarities()
    assert found[:, 1].tolist() == pytest.approx([0.25, 0.25, 0.25, 0.25, 0.5, 0.5])
    assert np.isnan(found[:, 2]).all()


@pytest.mark.parametrize("seed", range(3))
def test_two_heads_of_a_cluster_are_close_and_each_close_pair_is_in_one(seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(4, 2))[rng.integers(0, 4, 15)] + rng.normal(size=(15, 2)) * 0.03
    distances = pdist(points)
    names = np.array([f"L0H{i}" for i in range(15)])
    found = np.array(cluster_names(names, distances))
    square = squareform(distances)
    for name in {*found} - {""}:
        members = np.flatnonzero(found == name)
        assert len(members) > 1
        assert names[members[0]] == name
        assert square[np.ix_(members, members)].max() <= 0.1
    single = np.flatnonzero(found == "")
    assert (square[np.ix_(single, single)] + np.eye(len(single)) > 0.1).all()


def test_clusters_and_layers_are_stated(gpt2_folder, story):
    """Head 1 gets the query and key weights of head 0, and head 3 the key weights of head 2."""
    model = load_model(str(gpt2_folder))
    for module in attention_modules(model.engine.network):
        for values in (module.c_attn.weight.data, module.c_attn.bias.data):
            values[..., 8:16] = values[..., :8]
            values[..., 40:48] = values[..., 32:40]
            values[..., 56:64] = values[..., 48:56]
    run = hs.classify(model, story, types=["positional"], max_tokens=500)
    found = hs.redundancy(run, windows=3, queries=5)
    table = found.table.set_index(["layer", "head"])
    for layer in (0, 1):
        name = f"L{layer}H0"
        assert table.loc[(layer, 0), "nearest"] == f"L{layer}H1"
        assert table.loc[(layer, 0), "cluster"] == table.loc[(layer, 1), "cluster"] != ""
        assert any(f"{name}, L{layer}H1" in note for note in found.notes)
    by_layer = found.table.groupby("layer")[CKA].mean()
    for stated in found.values["layers"]:
        assert [stated[name] for name in CKA] == by_layer.loc[stated["layer"]].tolist()
    above = int((by_layer["key_cka"] > by_layer["query_cka"]).sum())
    assert above == 2
    assert any(f"key_cka is above query_cka in {above} of 2" in note for note in found.notes)


def by_kernels(x: np.ndarray, y: np.ndarray) -> float:
    """Linear CKA by the definition with kernels of tokens × tokens (Gretton et al. 2005)."""
    k, level = x @ x.T, np.eye(len(x)) - 1 / len(x)
    centred, other = level @ k @ level, level @ (y @ y.T) @ level
    return (centred * other).sum() / np.sqrt((centred**2).sum() * (other**2).sum())


def projected(folder, windows) -> list[list[np.ndarray]]:
    """Queries, keys and values of each layer by head, as transformers' modules give them."""
    network = load_model(str(folder)).engine.network
    found: dict[str, list[torch.Tensor]] = {}
    for name, module in network.named_modules():
        if name.endswith(("c_attn", "query_key_value", "q_proj", "k_proj", "v_proj")):
            outputs = found.setdefault(name, [])
            module.register_forward_hook(
                lambda *call, outputs=outputs: outputs.append(call[2][0, 1:])
            )
    with torch.no_grad():
        for window in windows:
            network(torch.from_numpy(window.tokens)[None])
    by_name = {name: torch.cat(outputs).double() for name, outputs in found.items()}
    parts = list(by_name.values())
    if "c_attn" in next(iter(by_name)):
        parts = [part for both in parts for part in both.split(32, -1)]
    if "query_key_value" in next(iter(by_name)):
        parts = [p.flatten(1) for all_ in parts for p in all_.view(-1, 4, 24).split(8, -1)]
    heads = [part.unflatten(-1, (-1, 8)).transpose(0, 1).numpy() for part in parts]
    return [heads[0:3], heads[3:6]]


def test_distances_are_those_of_the_models_own_attention(model_folder, story):
    options = {"max_tokens": 2000, "max_length": 64}
    run = hs.classify(model_folder, story, types=["positional"], **options)
    tokenizer = load_model(str(model_folder)).tokenizer
    text = [w for w in TextWindows([story], tokenizer, seed=0, **options) if len(w) > 1]
    total, count = np.zeros((8, 8)), 0
    windows = [text[i] for i in evenly(len(text), 3)]
    for window, patterns in zip(windows, eager_attention(model_folder, windows), strict=True):
        heads = patterns.reshape(8, len(window), len(window))
        for query in 1 + evenly(len(window) - 1, 5):
            count += 1
            for i in range(8):
                for j in range(i):
                    d = jensenshannon(heads[i, query], heads[j, query], base=2) ** 2
                    total[[i, j], [j, i]] += d
    found = hs.redundancy(run, windows=3, queries=5)
    assert found.values["queries"] == count == 15
    nearest = (total + 99 * np.eye(8)).argmin(1)
    assert found.table["nearest"].tolist() == [f"L{i // 4}H{i % 4}" for i in nearest]
    np.testing.assert_allclose(
        found.table["distance"], (total / count)[range(8), nearest], atol=1e-5
    )
    expected = np.zeros((8, 3))
    for layer, parts in enumerate(projected(model_folder, windows)):
        for column, heads in enumerate(parts):
            for head in range(4):
                own = head * len(heads) // 4
                others = [by_kernels(heads[own], y) for i, y in enumerate(heads) if i != own]
                expected[4 * layer + head, column] = np.mean(others)
    np.testing.assert_allclose(found.table[CKA], expected, atol=1e-5)


def test_another_engine_compares_patterns_alone(gpt2_folder, story, tmp_path):
    run = hs.classify(own_code(gpt2_folder, tmp_path), story, types=["positional"], max_tokens=200)
    found = hs.redundancy(run, windows=2, queries=2)
    assert found.table[CKA].isna().all(axis=None)
    assert "eager engine" in found.notes[-1]
