"""The null model: shuffled in place, and put back exactly."""

from __future__ import annotations

import pytest
import torch

from headscope.models.engines.engine import stream_patterns
from headscope.models.load import load_model
from headscope.models.null_model import null_model


def network(model):
    return model.engine.bridge if model.engine.name == "lens" else model.engine.network


@pytest.mark.parametrize("engine", ["fused", "eager", "lens"])
def test_entries_are_permuted_within_each_matrix_and_put_back(model_folder, engine):
    model = load_model(str(model_folder), engine=engine)
    matrices = model.engine.matrices()
    before = [m.clone() for m in matrices]
    others = {
        name: p.clone()
        for name, p in network(model).named_parameters()
        if "attn" not in name and "attention" not in name
    }
    with null_model(model.engine, seed=3):
        for old, new in zip(before, matrices, strict=True):
            assert not torch.equal(old, new)
            assert torch.equal(old.flatten().sort().values, new.flatten().sort().values)
        for name, p in network(model).named_parameters():
            if name in others:
                assert torch.equal(p, others[name]), name
    assert all(torch.equal(old, new) for old, new in zip(before, matrices, strict=True))


def test_all_engines_have_the_same_null_model(model_folder):
    seen = {}
    for engine in ("lens", "eager", "fused"):
        model = load_model(str(model_folder), engine=engine)
        found = []
        tokens = torch.arange(5, 25)[None]
        with null_model(model.engine, seed=5):
            stream_patterns(model.engine, tokens, lambda _, p, found=found: found.append(p.clone()))
        seen[engine] = torch.stack(found)
    assert torch.allclose(seen["lens"], seen["fused"], atol=1e-5)
    assert torch.allclose(seen["eager"], seen["fused"], atol=1e-5)
