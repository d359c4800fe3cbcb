"""SmolLM2-135M, a real pretrained model, on GUM: what must show whenever the file is there."""

from __future__ import annotations

import pytest

import headscope as hs


@pytest.fixture(scope="module")
def run(smollm2, gum):
    return hs.classify(smollm2, gum, max_tokens=6000)


def test_it_has_the_shape_that_its_file_says(run):
    model = run.info["model"]
    assert (model["layers"], model["heads"], model["key_value_heads"]) == (30, 9, 3)
    assert run.heads["kv_group"].tolist()[:9] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_it_has_heads_of_every_type_and_heads_of_none(run):
    primary = run.heads["primary"].value_counts()
    for name in ("positional", "delimiter", "induction", "syntactic", "coreference"):
        assert primary.get(name, 0) >= 1
    assert primary["unclassified"] > 50


def test_random_repeats_find_sharp_induction_heads(run):
    rows = run.evidence[run.evidence["relation"] == "repeat"]
    assert (rows["mass"] > 0.5).sum() >= 4
    assert (rows["mass"] < 0.05).mean() > 0.5


def test_previous_token_heads_are_diagonal_and_not_syntactic(run):
    best = run.evidence[run.evidence["relation"] == "offset-1"].sort_values("mass").iloc[-1]
    head = run.heads[(run.heads["layer"] == best["layer"]) & (run.heads["head"] == best["head"])]
    assert best["mass"] > 0.7
    assert head["shape"].item() == "diagonal"
    assert "syntactic" not in head["tags"].item()


def test_most_attention_rests_on_the_first_token_as_the_literature_says(run):
    """Vig & Belinkov 2019, 5.2.3: 57 % in GPT-2 small; a third and more here."""
    assert run.heads["first_token_mass"].mean() > 0.3


@pytest.mark.parametrize("relation", ["obj:dep>head", "conj:dep>head"])
def test_its_best_syntactic_heads_beat_every_fixed_offset_by_far(run, relation):
    rows = run.evidence[run.evidence["relation"] == relation]
    best = rows.sort_values("lift").iloc[-1]
    assert best["tagged"]
    assert best["hit_rate"] > best["best_offset_rate"] + 0.2


def test_randomly_initialised_layouts_show_nothing_but_chance(model_folder, gum):
    """Sharp random weights: no learned type is found in any layout."""
    run = hs.classify(str(model_folder), gum, max_tokens=15_000)
    learned = ("syntactic", "coreference", "induction", "delimiter")
    found = run.evidence[run.evidence["tagged"] & run.evidence["type"].isin(learned)]
    assert found[["type", "relation", "mass", "control", "lift"]].to_dict("records") == []
