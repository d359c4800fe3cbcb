"""The null model: shuffled in place, put back exactly, and a bar that tags must clear."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscope.corpus.window import Window
from headscope.measure.tally import Tally
from headscope.models.engines.engine import stream_patterns
from headscope.models.load import load_model
from headscope.models.null_model import MAX_TOKENS, WindowSample, null_model
from headscope.relations import relations_of
from headscope.statistics.estimates import weigh


def network(model):
    return model.engine.network if model.engine.name == "fused" else model.engine.bridge


@pytest.mark.parametrize("engine", ["fused", "lens"])
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


def test_both_engines_have_the_same_null_model(model_folder):
    seen = {}
    for engine in ("lens", "fused"):
        model = load_model(str(model_folder), engine=engine)
        found = []
        tokens = torch.arange(5, 25)[None]
        with null_model(model.engine, seed=5):
            stream_patterns(model.engine, tokens, lambda _, p, found=found: found.append(p.clone()))
        seen[engine] = torch.stack(found)
    assert torch.allclose(seen["lens"], seen["fused"], atol=1e-5)


def windows_of(count: int, *stimuli: str, length: int = 9) -> list[Window]:
    return [
        Window(f"{stimulus}{i}", np.arange(length), ("a",) * length, stimulus=stimulus)
        for i in range(count)
        for stimulus in stimuli
    ]


def test_the_null_model_reads_one_of_so_many_windows_of_each_compared_stimulus():
    windows = windows_of(17, "text", "repeat", "extra")
    for seed in range(20):
        chosen = WindowSample(seed=seed)(windows)
        for stimulus, every in (("text", 8), ("repeat", 4)):
            names = [windows[i].name for i in sorted(chosen) if windows[i].stimulus == stimulus]
            places = [int(name.removeprefix(stimulus)) // every for name in names]
            assert places == list(range(16 // every + 1))
        compared = WindowSample(seed=seed, stimuli={"text", "repeat"})(windows)
        assert compared == {i for i in chosen if windows[i].stimulus != "extra"}
    windows, sample = windows_of(128, "text", length=256), WindowSample(seed=0)
    read = [256 * len(sample(windows)) for _ in range(5)]
    assert (sum(read), read[4]) == (MAX_TOKENS, 0)  # it stops after enough tokens


def made_up(lift: float, queries: float) -> Tally:
    relations = tuple(r.id for r in relations_of(["induction"]))
    tally = Tally.zeros(relations, 1, 4)
    tally.queries[:, 0] = queries / 64
    tally.target[:, 0] = queries / 64 * np.linspace(0.1, lift, 4)
    return tally


def test_the_highest_of_few_heads_is_the_bar_and_few_queries_give_none():
    relations = relations_of(["induction"])
    own = made_up(0.9, 640)
    evidence = weigh(own, relations, seed=0, twin=made_up(0.5, 64))
    # the 99.9th percentile of four heads lies just below the highest
    assert evidence["twin_p999"].unique() == pytest.approx([0.5], abs=1e-3)
    assert weigh(own, relations, seed=0, twin=made_up(0.5, 7))["twin_p999"].isna().all()
    assert weigh(own, relations, seed=0)["twin_p999"].isna().all()
