"""Heads whose answer is known: found where planted, and no tag that is not true."""

from __future__ import annotations

import pytest

from headscope.models.load import load_model
from tests.oracles.calibrate import planted_rows, syntax_rows
from tests.oracles.planted import HEADS, LAYOUTS, save_planted

FIRST, *OTHERS = LAYOUTS


@pytest.fixture(
    scope="module",
    params=[FIRST, *(pytest.param(layout, marks=pytest.mark.slow) for layout in OTHERS)],
)
def layout(request) -> str:
    """The layout of the model; a quick test below shows that all layouts attend as built."""
    return request.param


@pytest.fixture(scope="module")
def clean(layout):
    return planted_rows([layout], [0.0], max_tokens=8_000)


def test_every_planted_head_is_found_and_none_is_mislabelled(clean):
    planted = clean[clean["relation"] != ""]
    assert len(planted) == sum(head.relation is not None for head in HEADS)
    assert planted[~planted["found"]]["name"].tolist() == []
    assert planted[planted["false"] != ""][["name", "false"]].to_dict("records") == []


def test_distractors_earn_no_false_tag(clean):
    own = clean[clean["relation"] == ""]
    assert {
        "uniform",
        "random",
        "recency",
        "any noun",
        "nearest name",
        "nearest noun",
        "same word",
    } <= set(own["name"])
    assert own[own["false"] != ""][["name", "false"]].to_dict("records") == []


@pytest.fixture(scope="module")
def artificial(layout):
    return syntax_rows([layout], [0.0], max_tokens=5_000)


def test_heads_that_follow_agreement_are_tagged_and_their_lazy_doubles_are_not(artificial):
    planted = artificial[artificial["relation"] != ""]
    assert set(planted["type"]) == {"syntactic"}
    assert len(planted) == 3
    assert planted[~planted["found"]]["name"].tolist() == []
    assert artificial[artificial["false"] != ""][["name", "false"]].to_dict("records") == []


@pytest.mark.slow
def test_noise_that_drowns_the_weights_drowns_the_tags(clean, layout):
    drowned = planted_rows([layout], [5.0], max_tokens=4_000)
    assert drowned["found"].sum() < clean["found"].sum() / 2


@pytest.mark.parametrize("name", LAYOUTS)
def test_planted_models_load_like_any_other_and_attend_as_built(tmp_path, name):
    import torch

    from headscope.models.engines.engine import stream_patterns

    words = ["<bos>", "<unk>", "the", "old", "king", "lost", "a", "ring", ".", "he", "near", "Anna"]
    model = load_model(str(save_planted(name, words, tmp_path / name)))
    ids = [0, *(words.index(w) for w in "the old king near Anna lost a ring . he".split())]
    patterns = {}
    stream_patterns(model.engine, torch.tensor([ids]), lambda i, p: patterns.update({i: p[0]}))
    layers = [[head for head in HEADS if head.layer == layer] for layer in (0, 1)]
    places = {head.name: heads.index(head) for heads in layers for head in heads}
    best = {head.name: patterns[head.layer][places[head.name]].argmax(-1) for head in HEADS}
    assert best["previous token"][1:].tolist() == list(range(len(ids) - 1))
    assert best["noun to determiner"][3] == 1  # king → the
    assert best["noun to determiner"][8] == 7  # ring → a
    assert best["object to verb"][8] == 6
    assert best["verb to subject"][6] == 5  # the nearest person: Anna
    assert best["pronoun to antecedent"][10] == 3  # he → king, over Anna
