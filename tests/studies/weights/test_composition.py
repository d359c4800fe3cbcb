"""K-composition: the plain formula, TransformerLens' own, built pairs, and what chance gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.models.load import load_model
from headscope.studies.weights import (
    HeadFactors,
    compositions,
    head_factors,
    k_composition,
    random_composition,
)
from tests.oracles.planted import HEADS, LAYOUTS, save_planted


def random_factors(seed: int, layers=3, heads=2, width=12, d_head=4, d_value=3) -> HeadFactors:
    generator = torch.Generator().manual_seed(seed)

    def draw(rows, columns):
        return torch.randn(layers, heads, rows, columns, generator=generator)

    return HeadFactors(
        draw(width, d_head), draw(width, d_head), draw(width, d_value), draw(d_value, width), width
    )


def test_the_plain_formula_pair_by_pair():
    f = random_factors(1)
    found = k_composition(f)
    for earlier, source, layer, head in np.ndindex(found.shape):
        score = found[earlier, source, layer, head]
        if earlier >= layer:
            assert score.isnan()
            continue
        ov = f.value[earlier, source] @ f.output[earlier, source]
        qk = f.query[layer, head] @ f.key[layer, head].T
        expected = (ov @ qk.T).norm() / (ov.norm() * qk.norm())
        assert score.item() == pytest.approx(expected.item(), rel=1e-5)


def test_transformer_lens_own_scores(normed_folder):
    found = k_composition(head_factors(load_model(str(normed_folder), engine="lens")))
    bridge = load_model(str(normed_folder), engine="lens").bridge
    bridge.enable_compatibility_mode(disable_warnings=True)
    with torch.no_grad():
        theirs = bridge.all_composition_scores("K").scores
    assert found[0, :, 1].isfinite().all()
    torch.testing.assert_close(found[0, :, 1], theirs[0, :, 1], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("shared", "rank"), [(4, 4), (2, 4), (1, 3), (0, 4)])
def test_a_pair_built_by_hand_composes_by_the_directions_that_it_shares(shared, rank):
    """Two maps of rank r that keep lengths, meeting in m directions: √m / r."""
    basis = torch.linalg.qr(torch.randn(20, 20, generator=torch.Generator().manual_seed(2))).Q
    written, read = basis[:, :rank], basis[:, rank - shared : 2 * rank - shared]
    anywhere = basis[:, :rank]
    stack = [matrix[None, None].repeat(2, 1, 1, 1) for matrix in (anywhere, read, anywhere)]
    output = written.T[None, None].repeat(2, 1, 1, 1)
    score = k_composition(HeadFactors(*stack, output, 20))[0, 0, 1, 0]
    assert score.item() == pytest.approx(math.sqrt(shared) / rank, abs=1e-6)


def test_what_meets_the_query_side_is_another_matter():
    eye = torch.eye(8)
    query, key = (
        eye[None, None, :, columns].repeat(2, 1, 1, 1) for columns in (slice(4), slice(4, 8))
    )
    for written, score in ((eye[4:8], 0.5), (eye[:4], 0.0)):
        output = written[None, None].repeat(2, 1, 1, 1)
        factors = HeadFactors(query, key, query, output, 8)
        assert k_composition(factors)[0, 0, 1, 0].item() == pytest.approx(score, abs=1e-6)


def test_a_head_that_writes_nothing_has_no_score():
    writes, reads = torch.zeros(1, 3, 8), torch.ones(2, 8, 3)
    assert compositions(writes, reads).isnan().all()
    assert compositions(writes + 1, reads).isfinite().all()


def test_chance_is_one_over_the_root_of_the_width_and_seeded():
    f = random_factors(3, layers=1, heads=1, width=256, d_head=32, d_value=32)
    chance = random_composition(f, seed=4)
    assert chance.mean == pytest.approx(1 / 16, rel=0.01)
    assert chance.mean < chance.p999 < 1.2 * chance.mean
    assert chance == random_composition(f, seed=4)
    assert chance != random_composition(f, seed=5)


def test_other_random_heads_stay_within_chance():
    f = random_factors(6, layers=2, heads=48, width=64, d_head=8, d_value=8)
    scores = k_composition(f)[0, :, 1]
    assert (scores > random_composition(f).p999).double().mean() < 0.004
    assert scores.mean().item() == pytest.approx(random_composition(f).mean, rel=0.02)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_planted_induction_head_finds_its_keys_by_the_planted_previous_token_head(
    layout, tmp_path
):
    words = "<bos> <unk> the old king lost a ring . he near Anna".split()
    found = hs.weights(str(save_planted(layout, words, tmp_path, noise=0.01)))
    place = {}
    for layer in (0, 1):
        for head, planted in enumerate(h for h in HEADS if h.layer == layer):
            place[planted.name] = (layer, head)
    best = found.table.loc[found.table["k_composition"].idxmax()]
    assert best["k_from"] == "L{}H{}".format(*place["previous token"])
    assert (best["layer"], best["head"]) == place["induction"]
    assert best["k_composition"] > 2 * best["k_random_p999"]
