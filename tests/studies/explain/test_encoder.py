"""Rules of heads that look both ways: planted ones are named, the features are a slow loop's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.statistics.result import by_name
from headscope.studies.explain.catalogue import Term, Texts
from headscope.studies.explain.feature import TokenFacts
from tests.helpers.encoders import corpus, save_hand_built

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
    return Texts.of((windows, [], []), TokenFacts.of(windows), relations)


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


def test_a_rule_without_what_is_ahead_does_not_explain_a_head_that_looks_ahead(explanation):
    rules = explanation.table[explanation.table["head"] == 0].set_index("feature")
    assert rules.loc["offset+1", "unique"] > 0.5
    backward = [name for name in rules.index if name.startswith("offset-")]
    assert not rules.loc[backward, "unique"].gt(0.05).any()


def test_the_cells_of_features_on_both_sides_are_those_of_a_slow_loop(table):
    window = table.windows[0]
    tokens, end = window.tokens, len(window) - 1
    mark = [text == "." for text in window.strings]
    expected = {
        "token 0": lambda q, k: k == 0,
        "separator": lambda q, k: k == end,
        "offset-2": lambda q, k: q - k == 2 and k > 0,
        "offset+2": lambda q, k: k - q == 2 and k < end,
        "ahead": lambda q, k: q < k < end,
        "same token ahead": lambda q, k: q < k < end and tokens[q] == tokens[k],
        "follower ahead": lambda q, k: q < k - 1 and k < end and tokens[q] == tokens[k - 1],
        "next mark sentence-end": lambda q, k: mark[k] and k > q and not any(mark[q + 1 : k]),
        "key VERB": lambda q, k: window.strings[k][0] == "v",
    }
    names = [feature.name for feature in table.features]
    assert table.query[0] == 0  # [CLS] looks at the text as every other token does
    for name, holds in expected.items():
        values = table.values([Term(names.index(name), -1)])[0]
        for row in np.flatnonzero(table.window.numpy() == 0):
            query = int(table.query[row])
            found = np.flatnonzero(values[row]).tolist()
            assert found == [key for key in range(len(window)) if holds(query, key)], (name, query)


def test_a_piece_within_a_word_is_told_from_a_word():
    facts = TokenFacts({}, {1: "the", 2: "##ing", 3: ","})
    assert [facts.text_of(token) for token in (1, 2, 3)] == ["the", "…ing", ","]
