from __future__ import annotations

import cmath

import pytest
import torch

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference import MultiHeadAttention, Rotary, attend
from tests.studies.anatomy.reference.slow import CLOSE, roughen, streams


@pytest.mark.parametrize(
    ("d_rotary", "base"), [(8, 10_000.0), (8, 500.0), (4, 10_000.0), (2, 100.0)]
)
def test_each_pair_is_a_complex_number_that_turns(d_rotary, base):
    x = torch.randn(6, 8)
    expected, half = x.clone(), d_rotary // 2
    for position in range(6):
        for i in range(half):
            angle = position / base ** (2 * i / d_rotary)
            point = complex(x[position, i], x[position, half + i]) * cmath.exp(1j * angle)
            expected[position, i], expected[position, half + i] = point.real, point.imag
    assert torch.allclose(Rotary(d_rotary, base)(x), expected, **CLOSE)


def test_features_after_the_turned_ones_are_left_exactly():
    x = torch.randn(2, 3, 6, 8)
    turned = Rotary(4)(x)
    assert torch.equal(turned[..., 4:], x[..., 4:])
    assert bool((turned[..., 1:, :4] != x[..., 1:, :4]).all())


def test_position_zero_is_not_turned_and_no_length_changes():
    x = torch.randn(2, 6, 8)
    turned = Rotary(8)(x)
    assert torch.equal(turned[:, 0], x[:, 0])
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), **CLOSE)


def test_a_score_depends_on_the_distance_alone():
    q, k = torch.randn(2, 8)
    scores = Rotary(8)(q.expand(9, 8)) @ Rotary(8)(k.expand(9, 8)).T
    for distance in range(-8, 9):
        diagonal = scores.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5)
    # and it does depend on it
    assert scores[0].std() > 0.1


def test_a_layer_turns_queries_and_keys_but_not_values():
    layer = roughen(MultiHeadAttention(16, 2, rotary=Rotary(4)))
    x, y = streams(5, 7)
    out, pattern = layer(x, y, y, return_pattern=True)
    z = []
    for h in range(2):
        mine = slice(8 * h, 8 * h + 8)
        q, k = Rotary(4)(layer.W_Q(x)[..., mine]), Rotary(4)(layer.W_K(y)[..., mine])
        one = attend(q, k, layer.W_V(y)[..., mine], return_pattern=True)
        assert torch.allclose(pattern[:, h], one.pattern, **CLOSE)
        z.append(one.output)
    assert torch.allclose(out, layer.W_O(torch.cat(z, -1)), **CLOSE)


def test_half_precision_stays_half_precision_with_exact_angles():
    x = torch.randn(300, 8)
    turned = Rotary(8)(x.bfloat16())
    assert turned.dtype == torch.bfloat16
    # angles of 299 in bfloat16 would be off by up to one radian
    assert torch.allclose(turned.float(), Rotary(8)(x.bfloat16().float()), atol=0.06)


@pytest.mark.parametrize("d_rotary", [3, 1, 0, -2])
def test_an_odd_or_empty_number_of_features_is_refused(d_rotary):
    with pytest.raises(ShapeError, match=f"d_rotary is {d_rotary}, but has to be even"):
        Rotary(d_rotary)


def test_more_features_than_there_are_cannot_be_turned():
    with pytest.raises(ShapeError, match="8 features are to be turned, but d_head is 6"):
        Rotary(8)(torch.randn(3, 6))
