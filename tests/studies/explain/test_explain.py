"""The model on rules, and `headscope explain`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import headscope as hs
from headscope.cli import main
from headscope.corpus.shipped import data_folder
from headscope.errors import ChoiceError, CorpusError, RunError
from headscope.models import loss as losses
from headscope.models.batching import ALL_TOGETHER, padded_tokens
from headscope.models.engines.engine import stream_patterns
from headscope.models.intervention import PatternReplaced
from headscope.models.load import load_model
from headscope.models.stream import stream_attention, whole_patterns
from headscope.studies.collapse import collapsed
from headscope.studies.explain.catalogue import Catalogue
from headscope.studies.explain.content_term import queries_and_keys
from headscope.studies.explain.explain_result import BY_HEAD
from headscope.studies.explain.feature import Feature, TokenFacts
from headscope.studies.explain.patterns import POSITION, RULE, UNIFORM, Patterns, groups_of
from headscope.studies.explain.places import LOG_DISTANCE, OFFSET, TOKEN_0
from headscope.studies.explain.surrogate import (
    LayerSurrogates,
    PartialFit,
    Share,
    Surrogate,
    Weighed,
)
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


def replaced(heads, pattern) -> PatternReplaced:
    return PatternReplaced(heads, pattern, within_visible=True)


def test_a_model_that_runs_on_its_own_patterns_is_untouched(model, windows):
    untouched, own = loss(model, windows), own_patterns(model, windows)
    for heads in ({0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}, {0: [2], 1: [1, 3]}):
        on_own = replaced(heads, lambda call: own[call.layer])
        assert loss(model, windows, on_own) == pytest.approx(untouched, rel=1e-4)
    assert loss(model, windows) == untouched


def test_only_the_heads_that_are_named_attend_otherwise(model, windows):
    own = own_patterns(model, windows)
    other = {layer: pattern.flip(1) for layer, pattern in own.items()}
    mixed = own[1].clone()
    mixed[:, 2] = other[1][:, 2]
    one = loss(model, windows, replaced({1: [2]}, lambda call: other[call.layer]))
    every = replaced({1: [0, 1, 2, 3]}, lambda call: mixed)
    assert one == pytest.approx(loss(model, windows, every), rel=1e-4)
    assert one != pytest.approx(loss(model, windows), rel=1e-4)


def term(feature: Feature, weight: float) -> Weighed:
    return Weighed(feature, -1, weight, weight, NO_SHARE, feature.kind)


def rules_of(model, terms: tuple[Weighed, ...]) -> Patterns:
    heads = tuple(
        Surrogate(0, head, 1.0, terms, NO_SHARE, NO_SHARE, None) for head in range(model.heads)
    )
    place = ((TOKEN_0, -1, 1.0), (LOG_DISTANCE, -1, -0.5))
    layer = LayerSurrogates(heads, (place,) * model.heads, None)
    catalogue = Catalogue(TokenFacts({}, {}), [])
    return Patterns(catalogue, {0: layer, 1: layer}, {}, model)


def test_a_rule_runs_as_the_softmax_that_it_says(model, windows):
    patterns = rules_of(model, (term(TOKEN_0, 1.5), term(OFFSET[2], 2.0)))
    found = patterns.on(windows).make(RULE)(0, torch.zeros(1))
    place = patterns.on(windows).make(POSITION)(0, torch.zeros(1))
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


def test_even_patterns_cost_what_collapse_to_uniform_costs(model, windows):
    patterns = rules_of(model, ())
    mine = loss(model, windows, patterns.on(windows).replacing({0: [0, 1, 2, 3]}, UNIFORM))
    uniform = collapsed(frozenset({0}), model.heads, "uniform")
    assert mine == pytest.approx(loss(model, windows, uniform), rel=1e-4)


def test_queries_and_keys_make_the_heads_own_scores_where_nothing_turns_them(
    gpt2_folder, tokenizer
):
    """GPT-2 adds positions to its input: softmax of q·k is the pattern, biases and all."""
    model = load_model(str(gpt2_folder))
    windows = hs.windows(GOLD, model.tokenizer, max_length=40, max_tokens=100)
    module = model.engine.network.transformer.h[0].attn
    seen = []

    def look(attention):
        if attention.layer == 0:
            stream = attention.attention_input
            query, key = queries_and_keys(module, model.engine.dimensions, stream)
            seen.append((next(attention.probabilities()), query, key))

    stream_attention(model, windows, whole_patterns, look, batch_tokens=ALL_TOGETHER)
    pattern, query, key = seen[0]
    bias = module.c_attn.bias.detach()
    width = query.shape[-1] - 1
    wanted = bias[: 4 * width].view(4, 1, 1, width)
    q = query[..., :-1] + wanted
    scores = q @ key[..., :-1].transpose(-1, -2) * width**-0.5  # a key's bias moves a whole row
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    rows = scores.masked_fill(later, -torch.inf).softmax(-1).transpose(0, 1)
    assert torch.allclose(rows, pattern, atol=1e-4)


@pytest.fixture(scope="module")
def found(gpt2_folder) -> hs.Explanation:
    return hs.explain(gpt2_folder, GOLD, features=3, rank=2, windows=16, each="layer")


def test_an_explanation_has_its_tables(found):
    assert list(found.table.columns) == columns_of("rules.csv")
    assert list(found.heads.columns) == BY_HEAD
    assert len(found.heads) == 8
    assert (found.heads["features"] <= 3).all()
    count = found.table.groupby(["layer", "head"]).size()
    assert count.sum() == found.heads["features"].sum()
    shares = found.coverage.drop(columns="layer")
    assert shares.sum(axis=1).tolist() == pytest.approx([1.0] * 3)
    assert found.coverage["layer"].tolist() == ["0", "1", "all"]
    own = found.heads
    total = 1 - shares["unexplained"].iloc[-1]
    assert total == pytest.approx((own["with_content"] * own["bits"]).sum() / own["bits"].sum())
    assert found.rule("L1H2") == own.iloc[6]["rule"]
    with pytest.raises(RunError, match="has no head 'L7H1'"):
        found.rule("L7H1")


def test_every_head_is_in_one_cluster_and_the_curve_ends_at_the_whole_rule(found):
    assert found.curve["features"].tolist() == [1, 2, 3]
    assert found.curve["explained"].iloc[-1] == pytest.approx(found.explained)
    own = found.losses[found.losses["replaced"] == "all"].set_index("how")
    last = found.curve["recovered"].iloc[-1]
    assert last == pytest.approx(own["recovered"]["rule"], nan_ok=True)
    assert found.curve["recovered"].iloc[:-1].isna().all()
    names = ";".join(found.clusters["heads"]).split(";")
    positive = found.rules[found.rules["unique"] > 0]
    assert len(names) == len(set(names)) == len(positive.groupby(["layer", "head"]))
    assert found.clusters["count"].sum() == len(names)
    assert found.unclassified.empty


def test_the_twin_is_explained_by_the_same_means_and_the_model_is_as_it_was(gpt2_folder):
    model = load_model(str(gpt2_folder))
    before = [matrix.clone() for matrix in model.engine.matrices()]
    asked = {"features": 2, "rank": 0, "windows": 8, "each": "none"}
    found = hs.explain(model, GOLD, **asked)
    assert list(found.twin.columns) == BY_HEAD
    assert len(found.twin) == 8
    assert (found.twin["features"] <= 2).all()
    changed = [x.equal(y) for x, y in zip(before, model.engine.matrices(), strict=True)]
    assert all(changed)
    # its heads are others: no rule is that of the model
    assert not np.allclose(found.twin["bits"], found.heads["bits"], rtol=1e-3)


def test_a_smaller_rule_runs_as_its_own_softmax(model, windows):
    own = (term(TOKEN_0, 1.5), term(OFFSET[2], 2.0))
    smaller = PartialFit(1, 0.5, ((OFFSET[2], -1, 1.0),))
    patterns = rules_of(model, own)
    layer = patterns.rules[0]
    heads = tuple(replace(head, smaller=(smaller,)) for head in layer.heads)
    cut = replace(patterns, rules={0: replace(layer, heads=heads)})
    assert cut.sizes == [1]
    assert patterns.sizes == []
    assert "rule of 1" in groups_of(cut, "size", {})[0][2]
    one = cut.on(windows).make("rule of 1")(0, torch.zeros(1))
    expected = rules_of(model, (term(OFFSET[2], 1.0),)).on(windows).make(RULE)(0, torch.zeros(1))
    assert torch.equal(one, expected)
    whole = cut.on(windows).make(RULE)(0, torch.zeros(1))
    # a rule that has no more features than asked for stays whole
    assert torch.equal(patterns.on(windows).make("rule of 4")(0, torch.zeros(1)), whole)
    assert not torch.allclose(one, whole)


def test_the_remainder_shows_where_a_head_looks_and_where_its_rule_says(found):
    rest = found.remainders
    assert rest.groupby(["layer", "head"]).size().tolist() == [3] * 8
    assert (rest["bits"] > 0).all()
    assert rest["text"].str.endswith("]]").all()
    worst = rest.groupby(["layer", "head"])["bits"].apply(list)
    assert all(bits == sorted(bits, reverse=True) for bits in worst)


def test_losses_run_from_uniform_to_untouched(found):
    losses = found.losses
    assert losses["replaced"].unique().tolist() == ["", "all", "L0", "L1"]
    own = losses[losses["replaced"] == "all"].set_index("how")
    assert own.index.tolist() == ["uniform", "mean pattern", "position", "rule", "rule + content"]
    room = own["loss"]["uniform"] - losses["loss"].iloc[0]
    # a model that knows nothing may even gain: then there is nothing to recover
    expected = (own["loss"]["uniform"] - own["loss"]) / room if room > 0 else own["loss"] * np.nan
    assert own["recovered"].tolist() == pytest.approx(expected.tolist(), nan_ok=True)


def test_the_same_seed_gives_the_same_rules(found, gpt2_folder):
    again = hs.explain(gpt2_folder, GOLD, features=3, rank=0, windows=16, each="none")
    assert again.losses is None
    assert again.heads["with_content"].isna().all()
    pd.testing.assert_frame_equal(again.heads[["rule"]], found.heads[["rule"]])
    assert again.coverage["content"].tolist() == [0, 0, 0]


def test_a_relation_of_ones_own_is_a_feature(gpt2_folder):
    @hs.relation("words", "two-back", floor=hs.Floor(0.3, "a test"))
    def two_back(window: hs.Window) -> hs.Pairs:
        """the word before last"""
        return hs.pairs(window.words.last[2:], window.words.last[:-2])

    windows = hs.windows(GOLD, load_model(str(gpt2_folder)).tokenizer, max_tokens=100)
    names = {
        each.feature.name for each in Catalogue(TokenFacts({}, {}), [two_back]).cells(windows[0])
    }
    assert "words/two-back" in names
    asked = {"features": 1, "windows": 8, "rank": 0, "each": "none"}
    assert len(hs.explain(gpt2_folder, GOLD, relations=[two_back], **asked).heads) == 8


def test_what_cannot_be_asked_is_said(gpt2_folder, tmp_path):
    with pytest.raises(ChoiceError, match="none, all, size, type, layer, head"):
        hs.explain(gpt2_folder, GOLD, each="some")
    short = tmp_path / "short.txt"
    short.write_text("The old keys were in the house.")
    with pytest.raises(CorpusError, match="1 windows of text"):
        hs.explain(gpt2_folder, short)


def test_the_command_prints_rules_and_writes_table_and_figure(
    gpt2_folder, tmp_path, monkeypatch, capsys
):
    out, figure = tmp_path / "rules.csv", tmp_path / "coverage.svg"
    words = ["explain", gpt2_folder, "--corpus", GOLD, "--windows", 8, "--features", 2, "-q"]
    words += ["--out", out, "--figure", figure, "--each", "size"]
    monkeypatch.setattr("sys.argv", ["headscope", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    told = capsys.readouterr().out
    assert "bits explained" in told
    assert "rule + content" in told
    assert "rule of 1" in told
    assert "null model, attention weights shuffled" in told
    assert "features, at most" in told
    assert "heads alike by" in told
    assert "L1H3" in told
    table = pd.read_csv(out)
    assert list(table.columns) == columns_of("rules.csv")
    assert table.groupby(["layer", "head"]).size().max() <= 2
    assert "<svg" in figure.read_text()


def test_a_rule_that_explains_bits_but_not_the_effect_is_named(found):
    heads = found.heads.assign(with_content=0.9)
    names = [f"L{a}H{b}" for a, b in zip(heads["layer"], heads["head"], strict=True)]
    rows = [(name, UNIFORM, 3.0, 0.0, 0.0, 0.0) for name in names]
    rows += [(name, RULE, 3.0, 0.2, 0.1, 0.3) for name in names]
    rows[-1] = (names[-1], RULE, 3.0, 0.4, 0.1, 0.7)  # not sure
    losses = pd.DataFrame(rows, columns=found.losses.columns)
    assert len(replace(found, heads=heads, losses=losses).at_odds) == len(names) - 1
    assert replace(found, heads=heads.assign(with_content=0.7), losses=losses).at_odds.empty
    assert replace(found, losses=None).at_odds.empty


def test_only_a_run_knows_types(gpt2_folder):
    with pytest.raises(hs.HeadscopeError, match="only a run knows types"):
        hs.explain(gpt2_folder, GOLD, each="type")


def test_heads_of_each_type_of_a_run_go_by_their_rules(gpt2_folder):
    run = hs.classify(gpt2_folder, GOLD, max_tokens=2000, twin=False, examples=False)
    found = hs.explain(run, features=2, rank=0, windows=12, each="type", twin=False)
    assert found.twin is None
    names = set(found.losses["replaced"]) - {"", "all"}
    assert names == set(run.heads["primary"])
    assert found.heads["primary"].tolist() == run.heads["primary"].tolist()
    untagged = (run.heads["primary"] == "unclassified").sum()
    assert len(found.unclassified) == untagged
    assert found.unclassified["bits"].is_monotonic_decreasing
