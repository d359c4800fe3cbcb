"""The twin: shuffled in place, put back exactly, and a bar that tags must clear."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import headscope as hs
from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.measure.tally import Tally
from headscope.models.engines.engine import stream_patterns
from headscope.models.load import load_model
from headscope.models.null_model import MAX_TOKENS, WindowSample, null_model
from headscope.relations import relations_of
from headscope.statistics.estimates import weigh


def network(model):
    return model.engine.network if model.engine.name == "fused" else model.engine.bridge


def chosen_by_share(windows, seed):
    return [windows[i] for i in sorted(WindowSample(seed=seed)(windows))]


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


def test_a_model_without_such_matrices_says_so():
    class Other:
        blocks = (type("Block", (), {"attn": object()})(),)

    from headscope.models.engines.lens import attention_matrices

    with pytest.raises(ModelError, match=r"layer 0 shows no separate Q, K, V and O .*--no-twin"):
        attention_matrices(Other(), 0)


def test_both_engines_have_the_same_twin(model_folder):
    seen = {}
    for engine in ("lens", "fused"):
        model = load_model(str(model_folder), engine=engine)
        found = []
        tokens = torch.arange(5, 25)[None]
        with null_model(model.engine, seed=5):
            stream_patterns(model.engine, tokens, lambda _, p, found=found: found.append(p.clone()))
        seen[engine] = torch.stack(found)
    assert torch.allclose(seen["lens"], seen["fused"], atol=1e-5)


def test_the_twin_stops_reading_a_stimulus_after_enough_tokens():
    windows = [Window(str(i), np.arange(256), ("a",) * 256) for i in range(128)]
    share = WindowSample(seed=0)
    read = [sum(len(windows[i]) for i in share(windows)) for _ in range(5)]
    assert read[0] == 16 * 256
    assert sum(read) == MAX_TOKENS
    assert read[4] == 0


def test_the_twin_reads_one_of_so_many_windows_of_each_stimulus():
    def window(i, stimulus):
        return Window(f"{stimulus}{i}", np.arange(9), ("a",) * 9, stimulus=stimulus)

    windows = [window(i, s) for i in range(17) for s in ("text", "repeat")]
    for seed in range(20):
        chosen = chosen_by_share(windows, seed)
        assert chosen == sorted(chosen, key=windows.index)
        for stimulus, every in (("text", 8), ("repeat", 4)):
            places = [int(w.name.removeprefix(stimulus)) for w in chosen if w.stimulus == stimulus]
            assert [place // every for place in places] == list(range(16 // every + 1))
    assert chosen_by_share(windows, 1) == chosen_by_share(windows, 1)


def test_the_twin_leaves_out_what_no_relation_is_read_on_and_draws_the_same_of_the_rest():
    def window(i, stimulus):
        return Window(f"{stimulus}{i}", np.arange(9), ("a",) * 9, stimulus=stimulus)

    windows = [window(i, s) for s in ("further", "repeat", "text") for i in range(17)]
    every = WindowSample(seed=3)(windows)
    asked = WindowSample(seed=3, stimuli={"text", "repeat"})(windows)
    assert asked == {i for i in every if windows[i].stimulus != "further"}
    assert 0 < len(asked) < len(every)


def test_corpora_that_take_turns_are_all_in_the_twins_share():
    windows = [Window(f"{'ab'[i % 2]}{i}", np.arange(9), ("a",) * 9) for i in range(200)]
    first = {w.name[0] for w in chosen_by_share(windows, 0)}
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
    from headscope.run import load

    how = {"max_tokens": 400, "types": ["positional", "delimiter", "induction"]}
    run = hs.classify(str(gpt2_folder), keys_file, out=tmp_path / "run", **how)

    back = load(tmp_path / "run", with_tally=True)
    assert run.twin is not None
    assert back.twin is not None
    assert np.array_equal(back.twin.target.sum(0), run.twin.target.sum(0))
    assert not back.twin.target[1:].any()
    assert np.array_equal(back.tally.target, run.tally.target)
    hs.classify(str(gpt2_folder), keys_file, keep_sums=True, out=tmp_path / "whole", **how)
    whole = load(tmp_path / "whole", with_tally=True)
    assert whole.twin is not None
    assert np.array_equal(whole.twin.target, run.twin.target)
    assert np.array_equal(whole.tally.target, run.tally.target)
