"""The twin: shuffled in place, put back exactly, and a bar that tags must clear."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import headscope as hs
from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.evidence import weigh
from headscope.models import load_model
from headscope.relations import relations_of
from headscope.tally import Tally
from headscope.twin import attention_matrices, share, shuffled


def test_entries_are_permuted_within_each_matrix_and_put_back(model_folder):
    model = load_model(str(model_folder))
    matrices = [m for layer in range(model.layers) for m in attention_matrices(model.bridge, layer)]
    before = [m.clone() for m in matrices]
    others = {
        name: p.clone()
        for name, p in model.bridge.named_parameters()
        if "attn" not in name and "attention" not in name
    }
    with shuffled(model.bridge, model.layers, seed=3):
        for old, new in zip(before, matrices, strict=True):
            assert not torch.equal(old, new)
            assert torch.equal(old.flatten().sort().values, new.flatten().sort().values)
        for name, p in model.bridge.named_parameters():
            if name in others:
                assert torch.equal(p, others[name]), name
    assert all(torch.equal(old, new) for old, new in zip(before, matrices, strict=True))


def test_the_twin_attends_otherwise(model_folder):
    from headscope.attention import stream_patterns

    model = load_model(str(model_folder))
    tokens = torch.arange(5, 25)[None]

    def patterns():
        seen = []
        stream_patterns(model.bridge, model.layers, tokens, lambda layer, p: seen.append(p.clone()))
        return torch.stack(seen)

    own = patterns()
    with shuffled(model.bridge, model.layers, seed=0):
        twin = patterns()
    assert (own - twin).abs().amax((1, 3, 4)).min() > 1e-3  # every layer and head
    assert torch.equal(own, patterns())


def test_the_weights_come_back_even_when_the_run_fails(gpt2_folder):
    model = load_model(str(gpt2_folder))
    before = attention_matrices(model.bridge, 0)[0].clone()
    with pytest.raises(KeyError), shuffled(model.bridge, model.layers, seed=3):
        raise KeyError
    assert torch.equal(before, attention_matrices(model.bridge, 0)[0])


def test_a_model_without_such_matrices_says_so():
    class Other:
        blocks = (type("Block", (), {"attn": object()})(),)

    with pytest.raises(ModelError, match=r"layer 0 shows no separate Q, K, V and O .*--no-twin"):
        attention_matrices(Other(), 0)


def test_the_twin_reads_one_of_every_four_windows_of_each_stimulus():
    def window(i, stimulus):
        return Window(f"{stimulus}{i}", np.arange(9), ("a",) * 9, stimulus=stimulus)

    windows = [window(i, s) for i in range(9) for s in ("text", "repeat")]
    for seed in range(20):
        chosen = share(windows, seed=seed)
        assert chosen == sorted(chosen, key=windows.index)
        for stimulus in ("text", "repeat"):
            places = [int(w.name.removeprefix(stimulus)) for w in chosen if w.stimulus == stimulus]
            assert [place // 4 for place in places] == [0, 1, 2]
    assert share(windows, seed=1) == share(windows, seed=1)


def test_corpora_that_take_turns_are_all_in_the_twins_share():
    windows = [Window(f"{'ab'[i % 2]}{i}", np.arange(9), ("a",) * 9) for i in range(200)]
    first = {w.name[0] for w in share(windows, seed=0)}
    assert first == {"a", "b"}


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


def test_a_tag_needs_more_than_the_twin_shows(gpt2_folder, keys_file):
    options = {"max_tokens": 400, "types": ["delimiter"]}
    run = hs.classify(str(gpt2_folder), keys_file, **options)
    without = hs.classify(str(gpt2_folder), keys_file, twin=False, **options)
    assert without.evidence["twin_p999"].isna().all()
    assert without.info["settings"]["twin"] is False
    # the twin changes nothing that was measured
    columns = ["layer", "head", "relation", "mass", "control", "ci_low"]
    pd.testing.assert_frame_equal(run.evidence[columns], without.evidence[columns])


def test_its_sums_are_kept_in_the_run_folder(gpt2_folder, keys_file, tmp_path):
    run = hs.classify(str(gpt2_folder), keys_file, max_tokens=400, out=tmp_path / "run")
    from headscope.store import load

    back = load(tmp_path / "run", with_tally=True)
    assert run.twin is not None
    assert back.twin is not None
    assert np.array_equal(back.twin.target, run.twin.target)
    assert np.array_equal(back.tally.target, run.tally.target)
