"""Words that heads make of words: planted heads, the laziest heads, a slow loop, chance."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope.corpus.controlled.forms import word_relations
from headscope.corpus.shipped import MINI, data_folder
from headscope.measure.bootstrap import resample
from headscope.models.load import load_model
from headscope.studies.weights.factors import head_factors
from headscope.studies.weights.listed import Listed, listed_relations
from headscope.studies.weights.related import _shares
from tests.helpers.formats import columns_of
from tests.helpers.models import LAYOUTS, save_model
from tests.helpers.word_heads import LAYER, save_word_heads


def _pairs(name: str, weight: float = 1.0) -> list[tuple[str, str, float]]:
    return [(each.word, each.right[0], weight) for each in word_relations()[name].words[:48]]


def _rivals(name: str) -> list[tuple[str, str, float]]:
    return [(each.word, each.rivals[0], 1.0) for each in word_relations()[name].words[:48]]


def _itself(name: str, weight: float = 1.0) -> list[tuple[str, str, float]]:
    return [(each.word, each.word, weight) for each in word_relations()[name].words[:48]]


def _any(name: str) -> list[tuple[str, str, float]]:
    """Every word becomes all the answers at once."""
    words = word_relations()[name].words[:48]
    return [(one.word, other.right[0], 0.1) for one in words for other in words]


HEADS = {
    "past": _pairs("past"),
    "lowers past": _pairs("past", -1.0),
    "capital": _pairs("capital"),
    "plural": _pairs("plural"),
    "copies verbs": _itself("past"),
    "copies, and the past": _itself("past", 1.3) + _pairs("past"),
    "any past": _any("past"),
    "past and -ing": _pairs("past") + _rivals("past"),
}


@pytest.fixture(scope="module", params=LAYOUTS)
def random_folder(request, tmp_path_factory) -> str:
    """Random weights, gains of norms too, and the tokenizer of `mini`, which spells numbers."""
    tokenizer = AutoTokenizer.from_pretrained(data_folder() / "mini")
    folder = save_model(request.param, tokenizer, tmp_path_factory.mktemp(request.param))
    model = AutoModelForCausalLM.from_pretrained(folder)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, each in model.named_parameters():
            if each.ndim == 1 and "bias" not in name:
                each.copy_(1 + 0.5 * torch.randn(each.shape, generator=generator))
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def planted(request, tmp_path_factory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp(request.param)
    save_word_heads(request.param, folder, list(HEADS.values()), noise=0.1)
    return hs.weights(str(folder), related=True).related


def _of(table: pd.DataFrame, name: str, relation: str, sign: str = "raises") -> pd.Series:
    at = (table["layer"] == LAYER) & (table["head"] == list(HEADS).index(name))
    (found,) = table[at & (table["relation"] == relation) & (table["sign"] == sign)].iloc
    return found


def test_planted_relations_hold_and_those_of_no_other_head(planted):
    held = planted[planted["verdict"] == "holds"]
    found = {tuple(row) for row in held[["layer", "head", "relation", "sign"]].to_numpy()}
    names = list(HEADS)
    assert found == {
        (LAYER, names.index("past"), "past", "raises"),
        (LAYER, names.index("lowers past"), "past", "lowers"),
        (LAYER, names.index("capital"), "capital", "raises"),
        (LAYER, names.index("plural"), "plural", "raises"),
        # the writers of calibration have a head of this kind in their first layer
        (0, 13, "successor", "raises"),
    }
    assert (held["score"] > 0.35).all()
    assert (held["ci_low"] > 0.2).all()
    assert held["says"].str.contains(": ").all()
    assert planted["verdict"].iloc[: len(held)].eq("holds").all()


def test_the_laziest_heads_are_refused_with_what_they_do(planted):
    copies = _of(planted, "copies verbs", "past")
    assert copies["rival_is"] == "the word itself"
    assert copies["rival"] > 0.9
    assert copies["verdict"] != "holds"
    both = _of(planted, "copies, and the past", "past")
    assert both["but_itself"] > 0.5
    assert both["verdict"] == "raises the word itself"
    lazy = _of(planted, "any past", "past")
    assert lazy["score"] < 0.1
    assert lazy["verdict"] == ""
    forms = _of(planted, "past and -ing", "past")
    assert forms["score"] > 0.25
    assert forms["rival_is"] == "its -ing form"
    assert forms["verdict"] == "raises its -ing form"


def test_a_head_of_what_is_alike_holds_nothing_where_all_answers_are(tmp_path):
    """The head raises what is like the word and takes the word away: that is no relation."""
    pairs = [(each.word, each.right[0]) for each in word_relations()["past"].words]
    lazy = [entry for a, b in pairs[:48] for entry in ((a, b, 1.0), (a, a, -0.8))]
    folder = save_word_heads("gpt2", tmp_path, [lazy], noise=0.0, alike=pairs)
    table = hs.weights(str(folder), related=True).related
    (row,) = table.query("layer == @LAYER and head == 0 and relation == 'past'")[:1].iloc
    assert row["sign"] == "raises"
    assert row["score"] > 0.6
    assert row["lift"] > 0.5
    assert row["alike"] == 1
    assert row["verdict"] == "likeness tells it too"


def test_the_score_is_that_of_a_slow_loop_over_the_whole_circuit(random_folder):
    """E W_V W_O U itself, from the weights that TransformerLens processes, one word at a time."""
    model = load_model(random_folder, engine="lens")
    (listed,) = listed_relations(model)[0]
    table = hs.weights(model, related=True).related
    bridge = load_model(random_folder, engine="lens").bridge
    bridge.enable_compatibility_mode(disable_warnings=True)
    values = bridge._expand_kv_heads(bridge.W_V)
    with torch.no_grad():
        for head in range(model.heads):
            hits = {"raises": 0, "lowers": 0}
            for source, right in zip(listed.sources, listed.right, strict=True):
                written = bridge.W_E[source] @ values[0, head] @ bridge.W_O[0, head] @ bridge.W_U
                own = written[listed.candidates]
                hits["raises"] += int(right[own.argmax()])
                hits["lowers"] += int(right[own.argmin()])
            own = table[(table["layer"] == 0) & (table["head"] == head)].set_index("sign")["score"]
            for sign, count in hits.items():
                assert own[sign] == pytest.approx(count / len(listed.sources))


def test_random_weights_hold_nothing(random_folder):
    table = hs.weights(random_folder, related=True).related
    assert len(table) == 2 * 4 * 2
    assert (table["verdict"] != "holds").all()


def test_the_bound_on_chance_is_above_what_all_deals_of_the_answers_give():
    """Seven words, several of which share an answer: every permutation, one after the other."""
    answers = [0, 0, 1, 2, 3, 4, 5]
    right = np.eye(6, dtype=bool)[answers]
    rivals = np.zeros((1, 7, 6), bool)
    listed = Listed("x", "x", np.arange(7), np.arange(6), right, rivals, ("the word itself",))
    rng = np.random.default_rng(0)
    draws = resample(7, rng)
    for first in rng.integers(0, 6, (40, 7)):
        (row,) = _shares(listed, first[None], right.sum(0) / 7, draws).iloc
        found = round(row["score"] * 7)
        dealt = [
            sum(answers[j] == first[i] for i, j in enumerate(p)) for p in permutations(range(7))
        ]
        exact = np.mean(np.array(dealt) >= found)
        assert row["control"] * 7 == pytest.approx(np.mean(dealt))
        assert exact <= row["p_value"] + 1e-12
        expected = row["control"] * 7
        assert row["p_value"] == pytest.approx(min(1, expected**found / factorial(found)))


def test_no_word_is_its_own_answer_or_rival_and_none_is_asked_twice():
    for relation in word_relations().values():
        words = [each.word for each in relation.words]
        assert len(set(words)) == len(words) >= 20
        for each in relation.words:
            assert each.right
            assert each.word not in each.right
            assert not {each.word, *each.right} & set(each.rivals)
            assert len(each.rivals) == len(relation.rivals)


def test_mini_says_which_relations_have_too_few_words():
    found = hs.weights(MINI, related=True)
    assert found.related["relation"].unique().tolist() == ["successor"]
    assert any("too few pairs" in note and "capital (0)" in note for note in found.notes)
    assert hs.weights(MINI).related is None


def test_the_command_prints_and_writes_them(gpt2_folder, command, tmp_path):
    code, out, err = command("study", "weights", gpt2_folder, "--table", "related")
    assert not code, err
    assert "rows hold" in out
    assert "too few pairs" in out
    file = tmp_path / "related.csv"
    assert not command("study", "weights", gpt2_folder, "--table", "related", "--out", file)[0]
    assert pd.read_csv(file).columns.tolist() == columns_of("weights related")


def test_the_model_is_as_it_was(random_folder):
    model = load_model(random_folder, engine="lens")
    before = {name: each.clone() for name, each in model.bridge.state_dict().items()}
    hs.weights(model, related=True)
    head_factors(model)
    assert all(torch.equal(each, before[name]) for name, each in model.bridge.state_dict().items())
