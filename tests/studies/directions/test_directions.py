"""Directions that tell targets from controls: a planted matching subspace is found, and no more."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.errors import ChoiceError, CorpusError, HeadscopeError
from headscope.measure.study_windows import edge_windows
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.studies.directions.contrast import head_windows, held_by, pairs_of
from headscope.studies.directions.contrast_directions import _judged, halves
from tests.helpers import matching
from tests.helpers.shell import headscope

REPEAT = next(r for r in relations_of(["induction"]) if r.name == "repeat")


@pytest.fixture(scope="module", params=[4, 8])
def planted(request, tokenizer, tmp_path_factory):
    """A head that matches so many places of a code, and what it sees of repeated tokens."""
    folder = tmp_path_factory.mktemp("matched")
    matching.save_matching(tokenizer, folder, matched=request.param)
    model = load_model(str(folder))
    windows = edge_windows(model, [], {"repeat"}, seed=0)
    return request.param, list(head_windows(model, matching.INDUCTION, windows, REPEAT, seed=0))


def test_the_rank_of_a_planted_match_is_recovered(planted):
    rank, seen = planted
    table, needed = _judged(*halves(seen), 0)
    assert needed == rank
    table = table.set_index("removed")
    assert table.loc[0, "lift"] > 0.1
    assert abs(table.loc[rank, "lift"]) < 0.05 * table.loc[0, "lift"]
    assert table.loc[rank, "random_lift"] > 0.5 * table.loc[0, "lift"]
    assert table.loc[1, "lift"] > table.loc[rank, "lift"]


def test_the_masses_are_those_of_the_models_own_attention(planted, tokenizer, tmp_path):
    rank, seen = planted
    folder = matching.save_matching(tokenizer, tmp_path, matched=rank)
    model = load_model(str(folder))
    window = edge_windows(model, [], {"repeat"}, seed=0)[0]
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    with torch.no_grad():
        patterns = plain(torch.from_numpy(window.tokens)[None], output_attentions=True).attentions
    layer, head = matching.INDUCTION
    rows = patterns[layer][0, head].double().numpy()
    targets, controls = seen[0].pairs.targets, seen[0].pairs.controls
    on, off, count = seen[0].masses()
    assert on == pytest.approx(rows[targets.query, targets.key].sum(), rel=1e-4)
    own = (rows[controls.query, controls.key] * controls.weight).sum()
    assert off == pytest.approx(own, rel=1e-3, abs=1e-6)
    assert count == len(targets.queries)


def test_pairs_of_noise_hold_nothing_of_another_draw():
    rng = np.random.default_rng(0)
    signal = np.zeros((16, 16))
    signal[:3, :3] = 40 * np.eye(3)
    first, other = (torch.from_numpy(signal + rng.normal(size=(16, 16))) for _ in range(2))
    held = held_by(other, *pairs_of(first))
    assert held[1] < 0.75 < 0.9 < held[2]
    assert np.abs(np.diff(held[2:])).max() < 0.05


def test_the_command_and_the_library_say_the_same(tmp_path, tokenizer):
    folder = matching.save_matching(tokenizer, tmp_path / "model", matched=8)
    run = hs.classify(str(folder), "gold", max_tokens=2_000, examples=False, twin=False,
                      types=["induction"], out=tmp_path / "run")  # fmt: skip
    found = hs.directions(run, "L1H0", relation="induction/repeat")
    assert found.dimensions == 8
    assert found.figure().axes
    assert "8 hold 90%" in repr(found)
    shown = headscope(
        "study", "directions", tmp_path / "run", "L1H0", "--relation", "induction/repeat"
    )
    assert shown.returncode == 0, shown.stderr
    assert "8 pairs of query and key directions hold 90 % of the contrast" in shown.stdout
    with pytest.raises(ChoiceError, match="no relation named 'a/b'"):
        hs.directions(run, "L1H0", relation="a/b")
    with pytest.raises(HeadscopeError, match="no head L9H0"):
        hs.directions(run, "L9H0")
    with pytest.raises(HeadscopeError, match="L0H1 has no tag in this run"):
        hs.directions(run, "L0H1")
    keys = tmp_path / "few.txt"
    keys.write_text("one two three two three four. " * 20)
    with pytest.raises(CorpusError, match="which takes 8"):
        hs.directions(run, "L1H0", relation="induction/natural", corpus=keys)
