"""Feature models of known heads: fitted weights, named relations, no gain from noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.shipped import data_folder
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.statistics.result import by_name
from headscope.studies.explain.catalogue import GATES, SplitWindows, Term, Texts
from headscope.studies.explain.content import LayerRows
from headscope.studies.explain.feature_model import (
    JudgedRows,
    bits_without,
    explain_layer,
    explained,
    unexplained,
)
from headscope.studies.explain.fit import LayerFit, Selector, newton
from headscope.studies.explain.pattern_scores import kl_divergences, log_pattern
from tests.helpers.encoders import corpus, save_hand_built
from tests.helpers.formats import columns_of
from tests.helpers.prose import prose_windows
from tests.helpers.run_folders import data_of


@pytest.fixture(scope="module")
def texts() -> Texts:
    """Half of the windows fit, a quarter choose, a quarter judge."""
    windows = [w for w in prose_windows(6_000) if len(w) > 40][:32]
    parts = windows[:16], windows[16:24], windows[24:]
    return Texts.of(SplitWindows(*parts), relations_of(["all"]))


@pytest.fixture(scope="module")
def selector(texts) -> Selector:
    return Selector(texts)


def number(texts: Texts, name: str) -> int:
    return [each.name for each in texts.features].index(name)


def attention(texts: Texts, weights: dict[str, float], gate: int = -1) -> torch.Tensor:
    """A head that is a rule; a gate is of the last feature alone."""
    gates = [-1] * (len(weights) - 1) + [gate]
    terms = [Term(number(texts, n), g) for n, g in zip(weights, gates, strict=True)]
    logits = torch.tensordot(torch.tensor(list(weights.values())), texts.values(terms), 1)
    return log_pattern(logits, texts.seen).exp()


def test_no_feature_holds_at_a_later_key_or_twice_at_a_cell(texts):
    assert len(texts.features) > 250
    for feature in range(len(texts.features)):
        cell = texts.cell[texts.start[feature] : texts.start[feature + 1]]
        row, key = cell // texts.width, cell % texts.width
        assert (key <= texts.query.numpy()[row]).all()
        assert len(np.unique(cell)) == len(cell)


def test_newton_finds_the_weights_that_made_a_head(texts):
    planted = {"token 0": 2.0, "offset-1": 1.5, "key NOUN": -0.7, "log distance": -0.4}
    own = attention(texts, planted)
    values = texts.values([Term(number(texts, name), -1) for name in planted])
    found = newton(own, texts.seen, values, torch.zeros(4), steps=12)
    assert found.weights.tolist() == pytest.approx(list(planted.values()), abs=0.02)
    logs = log_pattern(torch.tensordot(found.weights, values, 1), texts.seen)
    assert float(kl_divergences(own, logs).mean()) < 1e-3


def test_the_gain_of_a_feature_is_that_of_its_weight_in_the_rule(texts, selector):
    own = torch.stack([attention(texts, {"token 0": 1.0, "nearest-VERB": 2.0})])
    seen = texts.seen[: texts.fitted]
    even = (seen / seen.sum(-1, keepdim=True))[None]
    wanted = selector.masses(own[:, : texts.fitted])
    gains = selector.gains(wanted, even)
    for name, gate in (("nearest-VERB", -1), ("token 0", GATES.index("verb"))):
        feature = number(texts, name)
        count = len(gains.nats)
        candidate = next(i for i in range(count) if selector.candidate(i) == (feature, gate))
        weight = float(gains.weight[candidate, 0])
        values = texts.values([Term(feature, gate)], texts.fitted)[0]
        before = kl_divergences(own[0, : texts.fitted], even[0].log())
        after = kl_divergences(own[0, : texts.fitted], log_pattern(weight * values, seen))
        gained = float((before - after).sum())
        assert float(gains.nats[candidate, 0]) == pytest.approx(gained, rel=1e-3)
        assert gained > 0


def test_a_planted_relation_is_named_first_and_a_planted_gate_too(texts, selector):
    relation = "syntactic/det:head>dep"
    noun = GATES.index("noun")
    heads = torch.stack(
        [
            attention(texts, {"token 0": 3.0, relation: 5.0}),
            attention(texts, {"token 0": 3.0, "offset-2": 4.0}, gate=noun),
        ]
    )
    first, second = explain_layer(texts, selector, LayerRows(3, heads, None), features=4)
    named = [each.feature.name for each in first.terms]
    assert set(named[:2]) == {"token 0", relation}
    assert next(e for e in first.terms if e.feature.name == relation).weight > 4
    assert first.explained.value > 0.95 > first.position
    gated = next(each for each in second.terms if each.feature.name == "offset-2")
    assert gated.queries == "noun"
    assert "offset-2 on a noun (+" in second.sentence


def test_an_even_head_has_nothing_to_explain_and_its_rule_no_feature(texts, selector):
    seen = texts.seen
    even = (seen / seen.sum(-1, keepdim=True))[None]
    assert [draft.terms for draft in LayerFit(texts, selector, even, 4).grow()] == [[]]
    (rule,) = explain_layer(texts, selector, LayerRows(0, even, None), features=4)
    assert rule.bits == pytest.approx(0, abs=1e-4)
    assert rule.sentence == "uniform attention"


def test_a_rule_has_no_more_features_than_it_may(texts, selector):
    planted = {"token 0": 2.0, "key NOUN": 1.0, "key VERB": 1.5, "offset-1": 2.0, "offset-3": 2.0}
    own = attention(texts, planted)[None]
    for most in (1, 3):
        (rule,) = explain_layer(texts, selector, LayerRows(0, own, None), features=most)
        assert len(rule.terms) == most


def test_bits_are_those_of_a_loop_and_those_without_a_feature_are_those_of_a_refit(texts):
    planted = {"token 0": 2.0, "offset-1": 1.5, "key NOUN": 0.5}
    own, judged, fit = attention(texts, planted), texts.judged, texts.selection_rows
    judge = JudgedRows(own[judged], texts.seen[judged], texts.window.numpy()[judged])
    values = texts.values([Term(number(texts, name), -1) for name in planted])
    fitted = newton(own[:fit], texts.seen[:fit], values[:, :fit], torch.zeros(3), steps=12)
    slow = [
        sum(float(p * math.log2(p * (int(query) + 1))) for p in row[: int(query) + 1] if p > 0)
        for row, query in zip(own[judged], texts.query[judged], strict=True)
    ]
    uniform = judge.by_document(torch.zeros_like(judge.attention))
    assert uniform.sum() == pytest.approx(sum(slow), rel=1e-4)
    for left_out in range(3):
        others = [i for i in range(3) if i != left_out]
        refit = newton(
            own[:fit], texts.seen[:fit], values[others, :fit], fitted.weights[others], steps=12
        )
        logits = torch.tensordot(refit.weights, values[others][:, judged], 1)
        lost = bits_without(judge, values[:, judged], fitted, left_out).sum()
        assert lost == pytest.approx(judge.by_document(logits).sum(), rel=0.35)


def test_explained_is_one_for_the_head_itself_and_zero_for_even_attention():
    uniform = np.array([3.0, 1.0, 2.0, 4.0])
    assert explained(np.zeros(4), uniform).value == 1
    assert explained(uniform, uniform).value == 0
    half = explained(uniform / 2, uniform)
    assert (half.value, half.low, half.high) == pytest.approx((0.5, 0.5, 0.5))
    assert math.isnan(explained(np.zeros(4), np.zeros(4)).value)
    uneven = explained(np.array([1.0, 1.0, 0.0, 1.0]), uniform)
    assert uneven.low < uneven.value < uneven.high


FIRST = {
    "L0H0": "offset+1",
    "L0H1": "offset-1",
    "L0H2": "separator",
}
"""The first feature of the rule of each hand-built head that looks at one place."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_hand_built(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "pairs.conllu"
    path.write_text(corpus(24, seed=0), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(folder):
    """The hand-built encoder, whose heads move what they look at: their patterns stay."""
    model = load_model(str(folder))
    layer = model.engine.network.bert.encoder.layer[0].attention
    generator = torch.Generator().manual_seed(0)
    for linear in (layer.self.value, layer.output.dense):
        linear.weight.data.normal_(0, 0.1, generator=generator)
    return model


@pytest.fixture(scope="module")
def explanation(model, text):
    return hs.explain(model, text, windows=16, features=4)


@pytest.fixture(scope="module")
def table(model, text):
    windows = hs.windows(text, model.tokenizer, max_length=60, max_tokens=200)
    relations = relations_of(["all"], attention_kind=BIDIRECTIONAL)
    return Texts.of(SplitWindows(windows), relations)


def check_cells(texts: Texts, expected: dict[str, Callable[[int, int], bool]]) -> None:
    """Compare cells of features in the first window with a slow loop."""
    for name, holds in expected.items():
        values = texts.values([Term(number(texts, name), -1)])[0]
        for row in np.flatnonzero(texts.window.numpy() == 0):
            query, keys = int(texts.query[row]), range(len(texts.windows[0]))
            found = np.flatnonzero(values[row]).tolist()
            assert found == [key for key in keys if holds(query, key)], (name, query)


def test_the_cells_of_features_are_those_of_a_slow_loop(texts):
    window = texts.windows[0]
    words, tokens = window.words, window.tokens
    verbs = [
        key
        for first, last, upos in zip(words.first, words.last, words.upos, strict=True)
        for key in range(first, last + 1)
        if upos == "VERB"
    ]
    expected = {
        "offset-2": lambda q, k: q - k == 2 and k > 0,
        "token 0": lambda q, k: k == 0,
        "same token": lambda q, k: 0 < k < q and tokens[q] == tokens[k],
        "follower": lambda q, k: 1 < k < q and tokens[k - 1] == tokens[q],
        "key VERB": lambda q, k: k <= q and k in verbs,
    }
    check_cells(texts, expected)


def test_the_cells_of_features_on_both_sides_are_those_of_a_slow_loop(table):
    window = table.windows[0]
    tokens, end = window.tokens, len(window) - 1
    mark = [text == "." for text in window.strings]
    assert table.query[0] == 0  # [CLS] looks at the text as every other token does
    expected = {
        "separator": lambda q, k: k == end,
        "offset+2": lambda q, k: k - q == 2 and k < end,
        "ahead": lambda q, k: q < k < end,
        "same token ahead": lambda q, k: q < k < end and tokens[q] == tokens[k],
        "follower ahead": lambda q, k: q < k - 1 and k < end and tokens[q] == tokens[k - 1],
        "next mark sentence-end": lambda q, k: mark[k] and k > q and not any(mark[q + 1 : k]),
    }
    check_cells(table, expected)


def test_the_rule_of_a_planted_head_names_what_it_looks_at(explanation):
    heads = by_name(explanation.terminal_table)
    first = explanation.table[explanation.table["place"] == 1].set_index("head")["feature"]
    assert {head: first[int(head[-1])] for head in FIRST} == FIRST
    assert (heads.loc[["L0H0", "L0H1", "L0H2"], "explained"] > 0.95).all()
    for head, relation in ((3, "obj:dep>head"), (4, "obj:head>dep")):
        rule = explanation.table[explanation.table["head"] == head].set_index("feature")
        assert rule.loc[f"syntactic/{relation}", "ci_low"] > 0.1
        # verbs, or nouns, on either side, and the right one most
        assert rule.index[:2].str.contains("key |syntactic/").all()
    # a head of even attention has nothing to explain, whichever way it may look
    assert heads.loc["L0H7", "bits"] == pytest.approx(0, abs=1e-3)


GOLD = data_folder() / "corpora" / "gold.conllu"


def test_the_command_keeps_the_feature_models_in_the_runs_folder(gpt2_folder, tmp_path, command):
    folder = tmp_path / "run"
    hs.classify(gpt2_folder, GOLD, out=folder, max_tokens=1_500, types=["positional"])
    before = hs.load(folder)
    words = ("explain", folder, "--windows", 12, "--features", 3)
    code, _, err = command(*words)
    assert not code, err
    run = hs.load(folder)
    assert list(run.feature_models.columns) == columns_of("explain")
    assert run.feature_models.groupby(["layer", "head"]).size().max() <= 3
    assert [run.heads.index.name, *run.heads.columns] == columns_of("heads.csv")
    pd.testing.assert_frame_equal(run.evidence, before.evidence)
    printed = run.why("L1H1")
    assert run.heads.loc["L1H1", "feature_model"] in printed
    assert f"explains {run.heads.loc['L1H1', 'explained']:.0%} of its bits" in printed
    assert run.heads.loc["L1H1", "feature_model"].split(" (")[0] in data_of(folder / "report.html")
    code, _, err = command(*words)
    assert code == 2
    assert "feature_model.csv" in err


def test_attention_that_no_feature_names_is_counted_by_class_and_token(texts):
    """A head on the first token and one comma, and a model of the first token alone."""
    seen = texts.seen[texts.judged]
    pattern = torch.zeros(len(seen), texts.width)
    pattern[:, 0] = 1
    own = pattern.clone()
    commas = 0
    rows = zip(texts.window[texts.judged].tolist(), texts.query[texts.judged].tolist(), strict=True)
    for row, (window, query) in enumerate(rows):
        strings = texts.windows[window].strings
        keys = [key for key in range(1, query + 1) if strings[key].strip() == ","]
        if keys:
            own[row, 0], own[row, keys[-1]] = 0.75, 0.25
            commas += 1
    counted = unexplained(texts, own, pattern)
    mass = pytest.approx(0.25 * commas / len(seen))
    assert counted.total == mass
    assert counted.by_class["mark"] == mass
    assert counted.by_token[","] == mass


def test_each_feature_of_a_model_is_worth_its_least_share_on_the_choosing_rows(texts, selector):
    planted = {"token 0": 3.0, "offset-1": 2.0, "key NOUN": 0.15, "key VERB": 0.1, "offset-4": 0.3}
    own = attention(texts, planted)[None]
    layer = LayerFit(texts, selector, own, 12)
    (draft,) = layer.grow()
    fit, choosing = slice(texts.fitted), slice(texts.fitted, texts.selection_rows)
    values, seen = texts.values(draft.terms), texts.seen
    bits = kl_divergences(own[0, choosing], log_pattern(torch.zeros_like(own[0]), seen)[choosing])

    def loss(terms: list[int]) -> float:
        fitted = newton(
            own[0, fit], seen[fit], values[terms][:, fit], torch.zeros(len(terms)), steps=12
        )
        logits = torch.tensordot(fitted.weights, values[terms][:, choosing], 1)
        return float(kl_divergences(own[0, choosing], log_pattern(logits, seen[choosing])).sum())

    terms = list(range(len(draft.terms)))
    whole = loss(terms)
    for term in terms:
        others = [other for other in terms if other != term]
        assert loss(others) - whole > 0.0045 * float(bits.sum())
