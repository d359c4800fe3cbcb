"""Heads replaced by feature models and baselines: planted heads, slow loops, the command."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.corpus.shipped import data_folder
from headscope.models.engines.engine import stream_patterns
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.studies.explain.catalogue import SplitWindows, Texts
from headscope.studies.explain.feature_model import (
    FeatureModel,
    Share,
    Unexplained,
    WeightedFeature,
)
from headscope.studies.explain.features import Feature
from headscope.studies.explain.pattern_scores import Agreement, PatternScores
from headscope.studies.explain.replace_heads import FeatureLogits, MeanByDistance, means_by_distance
from tests.helpers.encoders import corpus, save_hand_built
from tests.helpers.formats import columns_of
from tests.helpers.prose import prose_windows

GOLD = data_folder() / "corpora" / "gold.conllu"
SURE = Share(1.0, 1.0, 1.0)
EQUAL = Agreement(explained=1.0, iou=1.0, correlation=1.0)
SCORES = PatternScores(all_keys=EQUAL, without_first=EQUAL)
UNEXPLAINED = Unexplained(total=0.0, by_class={}, by_token={})


def rows_of(table: pd.DataFrame, name: str) -> pd.DataFrame:
    return table[table["replacement"] == name].set_index(["order", "share"])


def first_patterns(model, window) -> torch.Tensor:
    """The patterns of the first layer on one window."""
    found: dict[int, torch.Tensor] = {}
    tokens = torch.from_numpy(window.tokens)[None]
    stream_patterns(model.engine, tokens, lambda layer, p: found.update({layer: p.clone()}))
    return found[0][0]


def planted(*terms: tuple[str, str, float], head: int) -> FeatureModel:
    weighted = [WeightedFeature(Feature(name, ""), queries, w, SURE) for name, queries, w in terms]
    return FeatureModel(0, head, 1.0, tuple(weighted), 0.0, SURE, SCORES, UNEXPLAINED)


def test_the_logits_of_a_feature_model_are_those_of_a_slow_loop_at_every_query(gpt2_folder):
    windows = [window for window in prose_windows(600) if len(window) > 40][:3]
    models = [
        planted(("token 0", "", 2.0), ("offset-1", "", 1.5), head=0),
        planted(("offset-2", "noun", 3.0), ("no such feature", "", 9.0), head=1),
    ]
    model = load_model(str(gpt2_folder))
    texts = Texts.of(SplitWindows(windows), relations_of(["all"]))
    logits = FeatureLogits(models, texts, model).on(windows)[0]
    for row, window in enumerate(windows):
        words = window.words
        nouns = words.last[np.isin(words.upos, ["NOUN", "PROPN"])]
        for query in range(1, len(window)):
            for key in range(query + 1):
                first = 2.0 * (key == 0) + 1.5 * (query - key == 1 and key > 0)
                second = 3.0 * (query - key == 2 and key > 0 and query in nouns)
                assert logits[row, :, query, key].tolist() == [first, second]


@pytest.fixture(scope="module")
def uniform_model(gpt2_folder):
    """A model whose heads attend equally to all keys that they see."""
    model = load_model(str(gpt2_folder))
    for block in model.engine.network.transformer.h:
        width = block.attn.c_attn.weight.shape[0]
        block.attn.c_attn.weight.data[:, : 2 * width] = 0
        block.attn.c_attn.bias.data[: 2 * width] = 0
        generator = torch.Generator().manual_seed(0)
        block.attn.c_proj.weight.data.normal_(0, 0.5, generator=generator)
    return model


def test_planted_heads_lose_nothing_and_another_pattern_costs(uniform_model):
    result = hs.replace_heads(uniform_model, GOLD, windows=16)
    assert (rows_of(result.table, "feature model")["rise"].abs() < 1e-4).all()
    assert (rows_of(result.table, "uniform")["rise"].abs() < 1e-4).all()
    everywhere = rows_of(result.table, "first token").loc[("random", 1.0)]
    assert abs(everywhere["rise"]) > 0.01
    assert everywhere["over_model"] == pytest.approx(everywhere["rise"], abs=1e-4)
    assert everywhere["perplexity"] == pytest.approx(np.exp(everywhere["loss"]))


def test_the_feature_model_of_another_head_costs_more(tmp_path):
    """The hand-built encoder attends by rules that its feature models name."""
    model = load_model(str(save_hand_built(tmp_path / "encoder")))
    layer = model.engine.network.bert.encoder.layer[0].attention
    generator = torch.Generator().manual_seed(0)
    for linear in (layer.self.value, layer.output.dense):
        linear.weight.data.normal_(0, 0.1, generator=generator)
    text = tmp_path / "pairs.conllu"
    text.write_text(corpus(24, seed=0), encoding="utf-8")
    table = hs.replace_heads(model, text, windows=16, features=4).table
    own = rows_of(table, "feature model")["rise"]
    lazy = rows_of(table, "other head")
    assert (lazy["over_low"] > 0).all()
    assert (own < lazy["rise"] / 3).all()
    assert table["perplexity"].isna().all()


@pytest.mark.parametrize("kind", [CAUSAL, BIDIRECTIONAL])
def test_means_by_distance_are_those_of_a_slow_loop(kind, gpt2_folder, tmp_path):
    folder = gpt2_folder if kind is CAUSAL else save_hand_built(tmp_path / "encoder")
    model = load_model(str(folder))
    text = tmp_path / "pairs.conllu"
    text.write_text(corpus(2, seed=0), encoding="utf-8")
    windows = hs.windows(text, model.tokenizer, max_length=24, max_tokens=60)
    patterns = [first_patterns(model, window) for window in windows]
    means = means_by_distance(model, windows)[0]
    assert isinstance(means, MeanByDistance)
    for distance in (0, 1, 5):
        shares = []
        for pattern, window in zip(patterns, windows, strict=True):
            for query in range(distance, len(window)):
                shares.append(pattern[:, query, query - distance])
        expected = torch.stack(shares).mean(0)
        assert torch.allclose(means.all_keys[:, means.longest + distance], expected, atol=1e-4)
    width = len(windows[0])
    with_sink = means.logits_with_sink(width, kind)[0].exp()
    hidden = torch.from_numpy(kind.hidden(width))
    assert torch.allclose(with_sink.masked_fill(hidden, 0).sum(-1)[:, 1:], torch.tensor(1.0))
    assert torch.allclose(with_sink[:, 5, 0], means.first_token)


def test_the_command_writes_the_table_and_leaves_a_run_as_it_is(gpt2_folder, tmp_path, command):
    run = tmp_path / "run"
    hs.classify(gpt2_folder, GOLD, out=run, max_tokens=1_500, types=["positional"])
    files = sorted(path.name for path in run.iterdir())
    out = tmp_path / "replaced.csv"
    figure = tmp_path / "replaced.png"
    words = ("explain", run, "--windows", 12, "--features", 3, "--figure", figure)
    assert command(*words)[0] == 2
    code, _, err = command(*words, "--replace", "--out", out)
    assert not code, err
    assert figure.exists()
    assert sorted(path.name for path in run.iterdir()) == files
    table = pd.read_csv(out)
    assert list(table.columns) == columns_of("replace_heads")
    assert len(table) == 6 * 2 * 4
    assert (table.loc[table["share"] == 1, "draws"] == 1).all()
