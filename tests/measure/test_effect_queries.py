"""Effects in a run: against a slow loop, and on models that learned nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

import headscope as hs
from headscope.causal.direct_paths import direct_paths
from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.measure.effect_queries import EVERY, TopKeyQueries
from headscope.measure.logit_effects import partners
from headscope.measure.reading import sum_cells
from headscope.models.load import load_model
from headscope.relations.effects import EFFECTS, sum_names
from headscope.relations.parts import MATCHED_CONTROL, part_name
from headscope.relations.query_sampling import turns
from headscope.stimuli.natural_text import TextWindows
from headscope.stimuli.repeat import repeat_windows
from tests.helpers.models import save_model

TEXT = 4_000


def test_a_random_model_writes_nothing(tokenizer, tmp_path):
    save_model("llama", tokenizer, tmp_path, layers=4)
    how = {"max_tokens": TEXT, "examples": False, "direct_effects": True}
    run = hs.classify(str(tmp_path), "gold", **how)
    assert (run.effects["n"] >= 50).sum() > 30
    assert not run.effects["tagged"].any()


@torch.no_grad()
def test_the_sums_are_those_of_a_slow_loop(tokenizer, tmp_path):
    model = load_model(str(save_model("gpt2", tokenizer, tmp_path)))
    text = TextWindows(
        asked_corpora("gold"), model.tokenizer, max_tokens=150, max_length=64, seed=0
    )
    windows = list(text)
    # texts of one and of two distinct tokens too, where few others are left for the control
    for distinct in (1, 2):
        repeated = 1 + np.arange(len(windows[0]) - 1) % distinct
        tokens = windows[0].tokens[[0, *repeated]]
        windows.append(replace(windows[0], name=f"of {distinct}", tokens=tokens))
    tally = sum_cells(model, windows, [], EFFECTS, seed=0, batch_tokens=256)
    names, patterns, effects = sum_names(EFFECTS), {}, {}
    expected = np.zeros((2, 4, model.layers, model.heads))  # copy and suppress/predicted
    queries = 0
    for window in windows:
        patterns, effects, logits = by_hand(model, window)
        places = [q for q in np.flatnonzero(turns(window) * EVERY < len(window)).tolist() if q > 1]
        queries += len(places)
        tokens = window.tokens.tolist()
        there = sorted(set(tokens[1:]))
        for layer in range(model.layers):
            for head in range(model.heads):
                for query in places:
                    row = patterns[layer][head, query]
                    key = 1 + int(row[1:].argmax())
                    if row[key] <= 0.3:
                        continue
                    token = tokens[key]
                    values = effects[layer][query, head]
                    others = [float(values[each]) for each in there if each != token]
                    spread = np.std([float(values[each]) for each in there])
                    weight = 1 / tokens[1:].count(token)
                    larger = sum(
                        float(logits[layer][query, each]) > float(logits[layer][query, token])
                        for each in there
                    )
                    for which in (0, 1) if larger <= 0.25 * len(there) else (0,):
                        expected[which, :, layer, head] += [
                            weight * float(values[token]),
                            weight * np.mean(others or [0]),
                            weight,
                            weight * spread,
                        ]
    assert tally.queries[:, 0].sum() == queries
    for which, name in enumerate(("writes/copy/looked-at", "writes/suppress/predicted")):
        index = names.index(name)
        matched = names.index(part_name(name, MATCHED_CONTROL))
        sums = (tally.target[:, index], tally.control[:, index], tally.hits[:, index])
        found = np.stack([each.sum(0) for each in (*sums, tally.target[:, matched])])
        assert np.abs(found - expected[which]).max() < 1e-3
        assert found[2].sum() > 3


def by_hand(model, window: Window):
    """Each layer's pattern, its heads' effects on every token, and what its input predicts."""
    tokens = torch.from_numpy(window.tokens)[None]
    paths, patterns, effects, streams = direct_paths(model), {}, {}, {}
    every = paths.directions(torch.arange(model.vocabulary_size))

    def keep(layer, rows):
        (pattern,) = rows
        patterns[layer] = (pattern.exp() if model.engine.logarithms else pattern)[0].clone()

    def take(layer, z, scale):
        effects[layer] = torch.einsum("qhd,thd->qht", z, paths.through_heads(layer, every))

    def stream(layer, x):
        streams[layer] = x @ every.T

    with paths.watching(torch.arange(len(window)), take, stream) as end:
        model.engine.run(tokens, model.engine.layout(*tokens.shape), keep, on=True)
    scaled = {layer: each * end.scale[:, None, None] for layer, each in effects.items()}
    return patterns, scaled, streams


def test_named_tokens_are_asked_of_every_head_alike(tokenizer, tmp_path):
    model = load_model(str(save_model("gpt2", tokenizer, tmp_path)))
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    windows = repeat_windows(vocabulary, model.tokenizer, max_length=40, seed=0, count=3)
    tally = sum_cells(model, [], windows, EFFECTS, seed=0, batch_tokens=256)
    index = sum_names(EFFECTS).index("writes/induction/repeat")
    expected, asked = np.zeros((model.layers, model.heads)), 0
    for window in windows:
        _, effects, _ = by_hand(model, window)
        # of the copy's last two tokens nothing follows in r that the target could be held against
        for query in range(window.copy_length + 1, len(window) - 2):
            token = int(window.tokens[query - window.copy_length + 1])
            asked += 1
            for layer in range(model.layers):
                expected[layer] += effects[layer][query, :, token].detach().numpy()
    assert tally.queries[:, index].sum() == asked
    assert (tally.hits[:, index].sum(0) == asked).all()
    assert np.abs(tally.target[:, index].sum(0) - expected).max() < 1e-3


def test_partners_are_other_asked_queries_of_the_same_window_and_head():
    rng = np.random.default_rng(0)
    window = torch.tensor([0] * 7 + [1] * 5)
    drawn = torch.from_numpy(np.concatenate([rng.permutation(7), 7 + rng.permutation(5)]))
    own = TopKeyQueries((), window, drawn, torch.zeros(0, 0, dtype=int), torch.zeros(0, 0), ())
    asked = torch.from_numpy(rng.random((12, 30)) < 0.4)
    found = partners(own, asked)
    for head in range(30):
        for part in (range(7), range(7, 12)):
            members = [i for i in part if asked[i, head]]
            chosen = [int(found[i, head]) for i in members]
            assert sorted(chosen) == members  # each is another's partner once
            assert len(members) < 2 or all(a != b for a, b in zip(members, chosen, strict=True))
