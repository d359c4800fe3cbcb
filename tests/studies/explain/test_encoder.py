"""Rules of heads that look both ways: planted ones are named, the features are a slow loop's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL
from headscope.models.intervention import HeadsScaled
from headscope.models.load import load_model
from headscope.models.loss import state_distances
from headscope.relations import relations_of
from headscope.studies.explain.catalogue import Catalogue, QueryTable, find_cells
from headscope.studies.explain.feature import TokenFacts
from headscope.studies.explain.fit import Term, Texts, term_values
from headscope.studies.explain.tokens import rule_words
from tests.helpers.encoders import corpus, save_hand_built
from tests.helpers.shell import headscope

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
    return hs.explain(model, text, windows=16, features=4, rank=0, twin=False)


@pytest.fixture(scope="module")
def table(model, text):
    windows = hs.windows(text, model.tokenizer, max_length=60, max_tokens=200)
    catalogue = Catalogue(
        TokenFacts.of(windows), relations_of(["all"], attention_kind=BIDIRECTIONAL)
    )
    rows = QueryTable.of(windows, 2)
    return Texts(rows, find_cells(catalogue, rows), len(rows), len(rows))


def test_the_rule_of_a_planted_head_names_what_it_looks_at(explanation):
    heads = explanation.heads.set_index(explanation.heads["head"].map("L0H{}".format))
    assert dict(heads["first"].loc[[*FIRST]]) == FIRST
    assert (heads.loc[["L0H0", "L0H1", "L0H2"], "explained"] > 0.95).all()
    for head, relation in ((3, "obj:dep>head"), (4, "obj:head>dep")):
        rule = explanation.rules[explanation.rules["head"] == head].set_index("feature")
        assert rule.loc[f"syntactic/{relation}", "ci_low"] > 0.1
        # verbs, or nouns, on either side, and the right one most
        assert rule.index[:2].str.contains("key |syntactic/").all()
    # a head of even attention has nothing to explain, whichever way it may look
    assert heads.loc["L0H7", "bits"] == pytest.approx(0, abs=1e-3)


def test_a_rule_without_what_is_ahead_does_not_explain_a_head_that_looks_ahead(explanation):
    rules = explanation.rules[explanation.rules["head"] == 0].set_index("feature")
    assert rules.loc["offset+1", "unique"] > 0.5
    backward = [name for name in rules.index if name.startswith("offset-")]
    assert not rules.loc[backward, "unique"].gt(0.05).any()


def test_states_stand_in_for_a_loss_and_planted_rules_recover_them(explanation):
    losses = explanation.losses.set_index("how")
    assert losses.loc["untouched", "loss"] == 0
    assert losses.loc["uniform", "recovered"] == 0
    assert losses.loc["rule", "recovered"] > losses.loc["mean pattern", "recovered"]
    assert explanation.measure == "last states"


def test_the_distance_of_states_is_that_of_the_network_itself(model, text):
    windows = hs.windows(text, model.tokenizer, max_length=40, max_tokens=150)
    windows = [windows[0].cut(20), windows[1]]
    without = HeadsScaled({0: torch.tensor([0.0] * 4 + [1.0] * 4)})
    found = state_distances(model, windows, without).nats
    base = model.engine.network.base_model
    for window, distance in zip(windows, found, strict=True):
        tokens = torch.tensor(window.tokens)[None]
        with torch.no_grad():
            own = base(tokens).last_hidden_state[0]
            with without.applied(model):
                changed = base(tokens).last_hidden_state[0]
        expected = ((own - changed).norm(dim=-1) / own.norm(dim=-1)).sum()
        assert distance == pytest.approx(float(expected), rel=1e-4)
        assert distance > 0.1
    assert not state_distances(model, windows).nats.any()


def test_the_cells_of_features_on_both_sides_are_those_of_a_slow_loop(table):
    window = table.rows.windows[0]
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
    names = [feature.name for feature in table.packed.features]
    assert table.rows.query[0] == 0  # [CLS] looks at the text as every other token does
    for name, holds in expected.items():
        values = term_values(table, [Term(names.index(name), -1)])[0]
        for row in np.flatnonzero(table.rows.window.numpy() == 0):
            query = int(table.rows.query[row])
            found = np.flatnonzero(values[row]).tolist()
            assert found == [key for key in range(len(window)) if holds(query, key)], (name, query)


def test_no_feature_holds_outside_a_window_or_twice_at_a_cell(table):
    assert len(table.packed.features) > 250
    for feature in range(len(table.packed.features)):
        cell, _ = table.packed.cells_of(feature)
        row, key = cell // table.rows.width, cell % table.rows.width
        assert (key < table.rows.row_end.numpy()[row]).all()
        assert len(np.unique(cell)) == len(cell), table.packed.features[feature].name


def test_rules_from_the_end_of_the_text_are_said_as_such():
    assert rule_words("later-last-of-sentence-before") == "the first word of the sentence after"
    assert rule_words("later-after-punctuation") == "the word before the next mark"
    assert rule_words("2-words-ahead") == "the word 2 words ahead"
    assert rule_words("nearest-VERB-on-either-side") == "the nearest verb on either side"


def test_a_piece_within_a_word_is_told_from_a_word():
    facts = TokenFacts({}, {1: "the", 2: "##ing", 3: ","})
    assert [facts.text_of(token) for token in (1, 2, 3)] == ["the", "…ing", ","]


def test_the_command_says_what_stands_in_for_the_loss(folder, text):
    sizes = ("--windows", "8", "--features", "2", "--rank", "0", "--no-twin")
    told = headscope("explain", str(folder), "--corpus", str(text), *sizes)
    assert told.returncode == 0, told.stderr
    assert "moved: the distance of an encoder's last states" in told.stdout
    assert "the token after (+" in told.stdout
