"""Rules of heads that are known: the weights come back, the relation is named, nothing is free."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headscope.relations import relations_of
from headscope.studies.explain.catalogue import GATES, Catalogue, QueryTable, find_cells
from headscope.studies.explain.feature import TokenFacts
from headscope.studies.explain.fit import LayerFit, Term, Texts, term_values
from headscope.studies.explain.judge import (
    Judge,
    bits_by_kind,
    explain_layer,
    explained,
    unique_bits,
)
from headscope.studies.explain.softmax import Target, kl_divergences, log_rule, newton
from tests.helpers.prose import prose_windows


@pytest.fixture(scope="module")
def texts() -> Texts:
    """Half of the windows fit, a quarter choose, a quarter judge."""
    windows = [w for w in prose_windows(6_000) if len(w) > 40][:32]
    catalogue = Catalogue(TokenFacts.of(windows[:16]), relations_of(["all"]))
    rows = QueryTable.of(windows, 2)
    counts = np.bincount(rows.window.numpy())
    return Texts(rows, find_cells(catalogue, rows), int(counts[:16].sum()), int(counts[:24].sum()))


def number(texts: Texts, name: str) -> int:
    return [each.name for each in texts.packed.features].index(name)


def attention(texts: Texts, weights: dict[str, float], gate: int = -1) -> torch.Tensor:
    """A head that is a rule; a gate is of the last feature alone."""
    gates = [-1] * (len(weights) - 1) + [gate]
    terms = [Term(number(texts, n), g) for n, g in zip(weights, gates, strict=True)]
    logits = torch.tensordot(torch.tensor(list(weights.values())), term_values(texts, terms), 1)
    return log_rule(logits, texts.rows.seen).exp()


def test_the_cells_of_features_are_those_of_a_slow_loop(texts):
    window = texts.rows.windows[0]
    keys = range(texts.rows.width)
    first = [r for r, w in enumerate(texts.rows.window.tolist()) if w == 0]
    words = window.words

    def upos(key: int) -> str:
        own = [i for i in range(len(words)) if words.first[i] <= key <= words.last[i]]
        return str(words.upos[own[0]]) if own else ""

    expected = {
        "offset-2": lambda q, k: q - k == 2 and k > 0,
        "token 0": lambda q, k: k == 0,
        "same token": lambda q, k: 0 < k < q and window.tokens[q] == window.tokens[k],
        "follower": lambda q, k: 1 < k < q and window.tokens[k - 1] == window.tokens[q],
        "key VERB": lambda q, k: k <= q and upos(k) == "VERB",
    }
    for name, holds in expected.items():
        values = term_values(texts, [Term(number(texts, name), -1)])[0]
        for row in first:
            query = int(texts.rows.query[row])
            found = [key for key in keys if values[row, key]]
            assert found == [key for key in range(len(window)) if holds(query, key)], (name, query)


def test_no_feature_holds_at_a_later_key_or_twice_at_a_cell(texts):
    assert len(texts.packed.features) > 250
    for feature in range(len(texts.packed.features)):
        cell, _ = texts.packed.cells_of(feature)
        row, key = cell // texts.rows.width, cell % texts.rows.width
        assert (key <= texts.rows.query.numpy()[row]).all()
        assert len(np.unique(cell)) == len(cell)


def test_newton_finds_the_weights_that_made_a_head(texts):
    planted = {"token 0": 2.0, "offset-1": 1.5, "key NOUN": -0.7, "log distance": -0.4}
    own = attention(texts, planted)
    values = term_values(texts, [Term(number(texts, name), -1) for name in planted])
    target = Target.of(own, texts.rows.seen)
    found = newton(target, values, torch.zeros(4))
    assert found.weights.tolist() == pytest.approx(list(planted.values()), abs=0.02)
    logs = log_rule(torch.tensordot(found.weights, values, 1), texts.rows.seen)
    assert float(kl_divergences(own, logs).mean()) < 1e-3


def test_the_gain_of_a_feature_is_what_a_loop_over_queries_says(texts):
    own = torch.stack([attention(texts, {"token 0": 1.0, "nearest-VERB": 2.0})])
    selector = texts.selector
    seen = texts.rows.seen[: texts.fitted]
    even = (seen / seen.sum(-1, keepdim=True))[None]
    wanted = selector.masses(own[:, : texts.fitted])
    gains = selector.gains(wanted, even)
    for name, gate in (("nearest-VERB", -1), ("token 0", GATES.index("verb"))):
        feature = number(texts, name)
        candidate = selector.number(feature, gate)
        assert selector.candidate(candidate) == (feature, gate)
        weight = float(gains.weight[candidate, 0])
        values = term_values(texts, [Term(feature, gate)], texts.fitted)[0]
        before = kl_divergences(own[0, : texts.fitted], even[0].log())
        after = kl_divergences(own[0, : texts.fitted], log_rule(weight * values, seen))
        gained = float((before - after).sum())
        assert float(gains.nats[candidate, 0]) == pytest.approx(gained, rel=1e-3)
        assert gained > 0


def test_a_planted_relation_is_named_first_and_a_planted_gate_too(texts):
    relation = "syntactic/det:head>dep"
    noun = GATES.index("noun")
    heads = torch.stack(
        [
            attention(texts, {"token 0": 3.0, relation: 5.0}),
            attention(texts, {"token 0": 3.0, "offset-2": 4.0}, gate=noun),
        ]
    )
    first, second = explain_layer(texts, 3, heads, features=4)
    named = [each.feature.name for each in first.terms]
    assert set(named[:2]) == {"token 0", relation}
    assert next(e for e in first.terms if e.feature.name == relation).weight > 4
    assert first.explained.value > 0.95 > first.position.value
    gated = next(each for each in second.terms if each.feature.name == "offset-2")
    assert gated.queries == "noun"
    assert "offset-2 on a noun (+" in second.sentence
    assert first.kinds["syntactic"] > 0.02
    assert sum(first.kinds.values()) == pytest.approx(first.explained.value, abs=1e-4)


def test_an_even_head_has_nothing_to_explain_and_its_rule_no_feature(texts):
    seen = texts.rows.seen
    even = (seen / seen.sum(-1, keepdim=True))[None]
    assert [draft.terms for draft in LayerFit(texts, even, 4).grow()] == [[]]
    (rule,) = explain_layer(texts, 0, even, features=4)
    assert rule.bits == pytest.approx(0, abs=1e-4)
    assert rule.sentence == "uniform attention"


def test_a_rule_has_no_more_features_than_it_may(texts):
    planted = {"token 0": 2.0, "key NOUN": 1.0, "key VERB": 1.5, "offset-1": 2.0, "offset-3": 2.0}
    own = attention(texts, planted)[None]
    for most in (1, 3):
        (rule,) = explain_layer(texts, 0, own, features=most)
        assert len(rule.terms) == most


def test_bits_are_counted_by_document_and_unique_bits_are_those_of_a_refit(texts):
    planted = {"token 0": 2.0, "offset-1": 1.5, "key NOUN": 0.5}
    own = attention(texts, planted)
    judged, seen = texts.judged, texts.rows.seen
    window = texts.rows.window.numpy()[judged]
    judge = Judge(own[judged], seen[judged], window - window.min())
    values = term_values(texts, [Term(number(texts, name), -1) for name in planted])
    target = Target.of(own[: texts.selection_rows], seen[: texts.selection_rows])
    fitted = newton(target, values[:, : texts.selection_rows], torch.zeros(3))
    uniform = judge.uniform()
    slow = [
        sum(
            float(p * math.log2(p * (int(query) + 1)))
            for p in row[: int(query) + 1].tolist()
            if p > 0
        )
        for row, query in zip(own[judged], texts.rows.query[judged], strict=True)
    ]
    assert uniform.sum() == pytest.approx(sum(slow), rel=1e-4)
    lost = [each.sum() for each in unique_bits(judge, values[:, judged], fitted)]
    for place in range(3):
        kept = [i for i in range(3) if i != place]
        refit = newton(target, values[kept, : texts.selection_rows], fitted.weights[kept])
        logits = torch.tensordot(refit.weights, values[kept][:, judged], 1)
        assert lost[place] == pytest.approx(judge.by_document(logits).sum(), rel=0.35)
    kinds = ["sink", "position", "lexical"]
    shares = bits_by_kind(judge, target, values, fitted.weights, kinds)
    rest = judge.by_document(torch.tensordot(fitted.weights, values[:, judged], 1))
    assert sum(shares.values()) == pytest.approx((uniform - rest).sum(), rel=1e-4)
    assert shares["lexical"] == pytest.approx(lost[2], rel=0.35)


def test_explained_is_one_for_the_head_itself_and_zero_for_even_attention():
    uniform = np.array([3.0, 1.0, 2.0, 4.0])
    assert explained(np.zeros(4), uniform).value == 1
    assert explained(uniform, uniform).value == 0
    half = explained(uniform / 2, uniform)
    assert (half.value, half.low, half.high) == pytest.approx((0.5, 0.5, 0.5))
    assert math.isnan(explained(np.zeros(4), np.zeros(4)).value)
    uneven = explained(np.array([1.0, 1.0, 0.0, 1.0]), uniform)
    assert uneven.low < uneven.value < uneven.high
