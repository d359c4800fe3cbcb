"""The model on rules, and `headscope explain`."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch

import headscope as hs
from headscope.cli import main
from headscope.corpus.shipped import data_folder
from headscope.errors import ChoiceError, CorpusError
from headscope.models import loss as losses
from headscope.models.batching import ALL_TOGETHER, padded_tokens
from headscope.models.engines.engine import stream_patterns
from headscope.models.intervention import PatternReplaced
from headscope.models.load import load_model
from headscope.models.loss import TextLoss
from headscope.studies.collapse import collapsed
from headscope.studies.explain.catalogue import Catalogue
from headscope.studies.explain.feature import Feature, TokenFacts
from headscope.studies.explain.judge import HeadRule, Share, WeightedFeature
from headscope.studies.explain.losses import POSITION, RULES, UNIFORM, RulePatterns, recovered
from headscope.studies.explain.places import LOG_DISTANCE, OFFSET, TOKEN_0
from tests.helpers.formats import columns_of

GOLD = data_folder() / "corpora" / "gold.conllu"
NO_SHARE = Share(0.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(str(model_folder))


@pytest.fixture(scope="module")
def windows(model):
    tokenizer = model.tokenizer
    return hs.windows(GOLD, tokenizer, max_length=48, max_tokens=200)


def own_patterns(model, windows) -> dict[int, torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    stream_patterns(
        model.engine,
        padded_tokens(windows),
        lambda layer, pattern: found.update({layer: pattern.clone()}),
    )
    return found


def loss(model, windows, intervention=None) -> list[float]:
    found = losses.loss(model, windows, intervention, batch_tokens=ALL_TOGETHER)
    return found.nats.tolist()


def replaced(layers, pattern) -> PatternReplaced:
    return PatternReplaced(frozenset(layers), pattern, within_visible=True)


def test_a_model_that_runs_on_its_own_patterns_is_untouched(model, windows):
    untouched, own = loss(model, windows), own_patterns(model, windows)
    on_own = replaced({0, 1}, lambda call: own[call.layer])
    assert loss(model, windows, on_own) == pytest.approx(untouched, rel=1e-4)
    assert loss(model, windows) == untouched


def rules_of(model, *parts: tuple[Feature, float]) -> dict[int, list[HeadRule]]:
    """The same rule for every head of two layers."""
    terms = tuple(WeightedFeature(f, -1, weight, f.kind, NO_SHARE) for f, weight in parts)
    place = ((TOKEN_0, -1, 1.0), (LOG_DISTANCE, -1, -0.5))
    heads = [
        HeadRule(0, head, 1.0, terms, place, NO_SHARE, NO_SHARE, {}) for head in range(model.heads)
    ]
    return {0: heads, 1: heads}


def patterns_of(rules, windows) -> RulePatterns:
    return RulePatterns(Catalogue(TokenFacts({}, {}), []), rules, windows)


def test_a_rule_runs_as_the_softmax_that_it_says(model, windows):
    patterns = patterns_of(rules_of(model, (TOKEN_0, 1.5), (OFFSET[2], 2.0)), windows)
    found, place = patterns.pattern(0, RULES), patterns.pattern(0, POSITION)
    assert found.shape[:2] == (len(windows), model.heads)
    for number, window in enumerate(windows):
        for query in range(1, len(window)):
            keys = torch.arange(query + 1)
            logits = 1.5 * (keys == 0) + 2.0 * ((query - keys == 2) & (keys > 0))
            row = found[number, 1, query]
            assert torch.allclose(row[: query + 1], logits.softmax(0), atol=1e-5)
            assert (row[query + 1 :] == 0).all()
            near = torch.where(keys == 0, 1.0, -0.5 * torch.log1p((query - keys).float()))
            assert torch.allclose(place[number, 3, query, : query + 1], near.softmax(0), atol=1e-5)


def test_a_feature_that_holds_nowhere_in_a_window_changes_no_pattern(model, windows):
    far = Feature("a feature of other texts", "lexical")
    with_it = patterns_of(rules_of(model, (TOKEN_0, 1.5), (far, 2.0)), windows)
    without = patterns_of(rules_of(model, (TOKEN_0, 1.5)), windows)
    assert torch.equal(with_it.pattern(0, RULES), without.pattern(0, RULES))


def test_even_patterns_cost_what_collapse_to_uniform_costs(model, windows):
    patterns = patterns_of({0: rules_of(model)[0]}, windows)
    mine = loss(model, windows, patterns.replacing(UNIFORM))
    uniform = collapsed(frozenset({0}), "uniform")
    assert mine == pytest.approx(loss(model, windows, uniform), rel=1e-4)


@pytest.fixture(scope="module")
def found(gpt2_folder) -> hs.Explanation:
    return hs.explain(gpt2_folder, GOLD, features=3, windows=16)


def test_an_explanation_has_its_tables(found):
    assert list(found.table.columns) == columns_of("rules.csv")
    assert len(found.heads) == 8
    assert found.table.groupby(["layer", "head"]).size().max() <= 3
    shares = found.coverage.drop(columns="layer")
    assert shares.sum(axis=1).tolist() == pytest.approx([1.0] * 3)
    assert found.coverage["layer"].tolist() == ["0", "1", "all"]
    own = found.heads
    total = 1 - shares["unexplained"].iloc[-1]
    assert total == pytest.approx((own["explained"] * own["bits"]).sum() / own["bits"].sum())
    assert json.loads(found.json())["explained"] == pytest.approx(own["explained"].mean())


def test_the_share_recovered_is_0_for_uniform_and_1_for_untouched_attention():
    def text_loss(*nats: float) -> TextLoss:
        return TextLoss(np.array(nats, float), np.array([2, 2, 2]))

    runs = {
        "untouched": text_loss(1, 1, 2),
        "uniform": text_loss(3, 5, 4),
        "rules": text_loss(2, 3, 3),
    }
    assert recovered(runs, UNIFORM)[0] == 0
    assert recovered(runs, "untouched")[0] == 1
    assert recovered(runs, RULES) == pytest.approx((0.5, 0.5, 0.5))
    # there is nothing to recover if uniform attention costs nothing
    assert np.isnan(recovered(runs | {"uniform": text_loss(1, 1, 1)}, RULES)[0])


def test_the_same_seed_gives_the_same_rules_and_losses_can_be_left_out(found, gpt2_folder):
    again = hs.explain(gpt2_folder, GOLD, features=3, windows=16, each="none")
    pd.testing.assert_frame_equal(again.table, found.table)
    assert found.values.keys() - again.values.keys() == {
        "untouched loss", "uniform loss", "position loss", "rules loss",
    }  # fmt: skip
    assert not again.summary


def test_what_cannot_be_asked_is_said(gpt2_folder, tmp_path):
    with pytest.raises(ChoiceError, match="none, all"):
        hs.explain(gpt2_folder, GOLD, each="some")
    short = tmp_path / "short.txt"
    short.write_text("The old keys were in the house.")
    with pytest.raises(CorpusError, match="1 windows of text"):
        hs.explain(gpt2_folder, short)


def test_the_command_prints_heads_and_writes_table_and_figure(
    gpt2_folder, tmp_path, monkeypatch, capsys
):
    out, figure = tmp_path / "rules.csv", tmp_path / "coverage.svg"
    words = ["explain", gpt2_folder, "--corpus", GOLD, "--windows", 8, "--features", 2, "-q"]
    words += ["--out", out, "--figure", figure]
    monkeypatch.setattr("sys.argv", ["headscope", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    told = capsys.readouterr().out
    assert "L1H3" in told
    assert "all heads on their rules: loss" in told
    table = pd.read_csv(out)
    assert list(table.columns) == columns_of("rules.csv")
    assert table.groupby(["layer", "head"]).size().max() <= 2
    assert "<svg" in figure.read_text()
