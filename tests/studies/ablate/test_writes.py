"""Heads' writes against the layer's own output."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch

from headscope.corpus.window import Window
from headscope.models.load import load_model
from headscope.models.rerun import Rerunner
from headscope.studies.ablate.head_writes import head_writes


@pytest.fixture(scope="module")
def rerunner(model_folder):
    return Rerunner(load_model(str(model_folder)))


def windows() -> list[Window]:
    rng = np.random.default_rng(0)
    return [Window(str(n), rng.integers(1, 90, n), ("a",) * n) for n in (14, 9)]


def test_the_writes_add_up_to_what_the_layer_writes(rerunner):
    """Silencing all other heads leaves the projection's output for one head, less its bias."""
    table = head_writes(rerunner, windows())
    norms = np.zeros((2, 4))
    means = np.zeros((2, 4, 32))
    for window in windows():
        caught: list[list[torch.Tensor]] = [[], []]
        handles = [
            output.register_forward_pre_hook(lambda m, x, kept=kept: kept.append((m, x[0])))
            for output, kept in zip(rerunner.outputs.values(), caught, strict=True)
        ]
        with torch.no_grad():
            rerunner.network.base_model(torch.from_numpy(window.tokens)[None])
        for handle in handles:
            handle.remove()
        for layer, ((module, z),) in enumerate(caught):
            for head in range(4):
                alone = torch.zeros_like(z)
                alone[..., 8 * head : 8 * head + 8] = z[..., 8 * head : 8 * head + 8]
                with torch.no_grad():
                    written = (module(alone) - module(torch.zeros_like(z)))[0, 1:]
                norms[layer, head] += float(written.norm(dim=-1).sum())
                means[layer, head] += written.sum(0).numpy()
    count = sum(len(window) - 1 for window in windows())
    assert np.allclose(table["write_norm"], norms.ravel() / count, rtol=1e-4)
    steady = np.linalg.norm(means, axis=-1) / norms
    assert np.allclose(table["steady"], steady.ravel(), rtol=1e-3)
    assert table.groupby("layer")["share"].sum().to_numpy() == pytest.approx([1, 1])
    unit = means / np.linalg.norm(means, axis=-1, keepdims=True)
    cosines = np.einsum("lhm,lgm->lhg", unit, unit) - 2 * np.eye(4)
    assert table["cosine"].to_numpy() == pytest.approx(cosines.max(-1).ravel(), abs=1e-4)
    assert table["nearest"].tolist() == cosines.argmax(-1).ravel().tolist()


def test_heads_with_the_same_matrices_write_the_same(gpt2_folder):
    rerunner = Rerunner(load_model(str(gpt2_folder)))
    for matrix in rerunner.model.engine.matrices()[:3]:
        matrix[8:16] = matrix[:8]
    bias = rerunner.network.transformer.h[0].attn.c_attn.bias.data
    for start in (0, 32, 64):
        bias[start + 8 : start + 16] = bias[start : start + 8]
    rerunner.outputs[0].weight.data[8:16] = rerunner.outputs[0].weight.data[:8]
    table = head_writes(rerunner, windows())
    assert table["cosine"][0] == pytest.approx(1, abs=1e-5)
    assert table["nearest"].tolist()[:2] == [1, 0]
    assert table["write_norm"][0] == pytest.approx(table["write_norm"][1])


def test_participation_and_massive_share_by_a_loop_over_tokens(gpt2_folder, monkeypatch):
    """Writes laid out one by one, their covariance and its eigenvalues; one dimension is massive."""
    study = import_module("headscope.studies.ablate.head_writes")
    monkeypatch.setattr(study, "MASSIVE", 1.0)
    monkeypatch.setattr(study, "MASSIVE_TIMES", 20.0)
    rerunner = Rerunner(load_model(str(gpt2_folder)))
    network = rerunner.network
    with torch.no_grad():
        network.transformer.wpe.weight[:, 5] = 30.0
    table = head_writes(rerunner, windows())
    laid_out: dict[tuple[int, int], list[np.ndarray]] = {}
    for window in windows():
        caught: dict[int, torch.Tensor] = {}
        handles = [
            output.register_forward_pre_hook(
                lambda _, inputs, layer=layer, to=caught: to.update({layer: inputs[0]})
            )
            for layer, output in rerunner.outputs.items()
        ]
        with torch.no_grad():
            network.base_model(torch.from_numpy(window.tokens)[None])
        for handle in handles:
            handle.remove()
        for layer, z in caught.items():
            matrix = network.transformer.h[layer].attn.c_proj.weight.detach().numpy()
            for head in range(4):
                part = slice(8 * head, 8 * head + 8)
                for token in z[0, 1:, part].numpy():
                    laid_out.setdefault((layer, head), []).append(token @ matrix[part])
    for row in table.itertuples():
        writes = np.array(laid_out[row.layer, row.head], float)
        spread = np.linalg.eigvalsh(np.cov(writes.T, bias=True))
        ratio = spread.sum() ** 2 / (spread**2).sum()
        assert row.participation == pytest.approx(ratio, rel=1e-3)
        share = (writes[:, 5] ** 2).sum() / (writes**2).sum()
        assert row.massive_share == pytest.approx(share, rel=1e-4)


def test_a_stream_without_massive_dimensions_has_no_share_of_them(gpt2_folder):
    table = head_writes(Rerunner(load_model(str(gpt2_folder))), windows())
    assert table["massive_share"].isna().all()
    assert table["participation"].between(1, 8).all()
