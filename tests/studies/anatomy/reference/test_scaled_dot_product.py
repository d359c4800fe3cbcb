from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference import attend, attend_fast, causal_mask
from tests.studies.anatomy.reference.slow import CLOSE, slow_head


@pytest.mark.parametrize("causal", [False, True])
def test_one_head_equals_a_loop_over_plain_numbers(causal):
    q, k, v = torch.randn(3, 6, 4)
    out, pattern = attend(q, k, v, causal=causal, return_pattern=True)
    slow_out, slow_pattern = slow_head(
        q, k, v, scale=1 / math.sqrt(4), visible=lambda i, j: j <= i or not causal
    )
    assert torch.allclose(out, slow_out, **CLOSE)
    assert torch.allclose(pattern, slow_pattern, **CLOSE)


def test_two_sequences_and_wider_values_equal_the_loop():
    q, k, v = torch.randn(3, 4), torch.randn(7, 4), torch.randn(7, 9)
    mask = torch.rand(3, 7) < 0.5
    out, pattern = attend(q, k, v, mask=mask, scale=1.7, return_pattern=True)
    slow_out, slow_pattern = slow_head(q, k, v, scale=1.7, visible=lambda i, j: bool(mask[i, j]))
    assert out.shape == (3, 9)
    assert torch.allclose(out, slow_out, **CLOSE)
    assert torch.allclose(pattern, slow_pattern, **CLOSE)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_it_equals_torch_with_any_number_of_axes_in_front(batch, scale):
    q, k, v = torch.randn(3, *batch, 6, 4)
    mask = causal_mask(6) | (torch.rand(6, 6) < 0.3)
    expected = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    assert torch.allclose(attend(q, k, v, mask=mask, scale=scale).output, expected, **CLOSE)


def test_rows_sum_to_one_and_hidden_keys_get_nothing():
    q, k, v = torch.randn(3, 2, 6, 4)
    pattern = attend(q, k, v, causal=True, return_pattern=True).pattern
    assert torch.allclose(pattern.sum(-1), torch.ones(2, 6))
    assert bool((pattern[:, ~causal_mask(6)] == 0).all())
    assert bool((pattern[:, causal_mask(6)] > 0).all())


def test_equal_keys_give_the_mean_of_the_values():
    v = torch.randn(5, 3)
    out, _ = attend(torch.randn(2, 4), torch.randn(1, 4).expand(5, 4), v)
    assert torch.allclose(out, v.mean(0).expand(2, 3), atol=1e-6)


def test_a_key_that_matches_far_better_hands_over_its_value():
    v = torch.randn(5, 3)
    out, _ = attend(100 * torch.eye(5)[[3]], torch.eye(5), v)
    assert torch.allclose(out[0], v[3], atol=1e-6)


@pytest.mark.parametrize("path", [attend, attend_fast])
def test_a_query_that_sees_no_key_gets_zero_and_its_gradient_is_finite(path):
    q, k, v = torch.randn(3, 2, 5, 4)
    q.requires_grad_()
    mask = causal_mask(5)
    mask[2] = False
    out = path(q, k, v, mask=mask).output
    assert bool((out[:, 2] == 0).all())
    assert bool((out[:, [0, 1, 3, 4]] != 0).all())
    (gradient,) = torch.autograd.grad(out.square().sum(), q)
    assert bool((gradient[:, 2] == 0).all())
    assert bool(gradient.isfinite().all())
    assert bool((gradient[:, 3:] != 0).any())


def test_the_row_of_a_query_that_sees_no_key_sums_to_zero():
    q, k, v = torch.randn(3, 5, 4)
    mask = causal_mask(5)
    mask[2] = False
    pattern = attend(q, k, v, mask=mask, return_pattern=True).pattern
    assert torch.allclose(pattern.sum(-1), torch.tensor([1.0, 1, 0, 1, 1]))


def test_the_pattern_comes_only_when_asked_for():
    q, k, v = torch.randn(3, 5, 4)
    plain, with_pattern = attend(q, k, v), attend(q, k, v, return_pattern=True)
    assert plain.pattern is None
    assert with_pattern.pattern.shape == (5, 5)
    assert torch.equal(plain.output, with_pattern.output)


def test_inputs_are_left_as_they_are():
    given = [*torch.randn(3, 5, 4), causal_mask(5)]
    before = [x.clone() for x in given]
    attend(*given[:3], mask=given[3], causal=True)
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True))


@pytest.mark.parametrize("path", [attend, attend_fast])
@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        ((2, 5, 4), (2, 5, 3), (2, 5, 4)),
        ((2, 5, 4), (2, 6, 4), (2, 5, 4)),
        ((2, 5, 4), (3, 5, 4), (3, 5, 4)),
        ((5, 4), (1, 5, 4), (1, 5, 4)),
    ],
)
def test_what_does_not_fit_is_refused_with_the_three_shapes(path, q, k, v):
    with pytest.raises(ShapeError) as error:
        path(torch.randn(q), torch.randn(k), torch.randn(v))
    assert all(
        f"{name} {shape}" in str(error.value)
        for name, shape in (("query", q), ("key", k), ("value", v))
    )
