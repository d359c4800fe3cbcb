from __future__ import annotations

import pytest
import torch

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference import MultiHeadAttention, RelativePositions, attend
from tests.studies.anatomy.reference.slow import CLOSE, roughen, slow_head, streams


def _shift(table: torch.Tensor, most: int):
    rows = table.tolist()
    return lambda i, j: rows[max(-most, min(most, j - i)) + most]


@pytest.mark.parametrize("most", [0, 1, 2, 9])
@pytest.mark.parametrize("causal", [False, True])
def test_one_head_equals_a_loop_over_plain_numbers(most, causal):
    relative = roughen(RelativePositions(4, max_distance=most))
    q, k, v = torch.randn(3, 6, 4)
    out, pattern = relative(q, k, v, causal=causal, return_pattern=True)
    slow_out, slow_pattern = slow_head(
        q, k, v, scale=0.5, visible=lambda i, j: j <= i or not causal,
        key_shift=_shift(relative.keys, most), value_shift=_shift(relative.values, most),
    )  # fmt: skip
    assert torch.allclose(out, slow_out, **CLOSE)
    assert torch.allclose(pattern, slow_pattern, **CLOSE)


def test_a_layer_in_cross_attention_equals_the_loop_head_by_head():
    relative = RelativePositions(4, max_distance=2)
    layer = roughen(MultiHeadAttention(16, 4, n_kv_heads=2, relative=relative))
    x, y = streams(3, 6)
    mask = torch.rand(3, 6) < 0.7
    out, pattern = layer(x, y, y, mask=mask, return_pattern=True)
    for b in range(2):
        z = []
        for h in range(4):
            mine, shared = slice(4 * h, 4 * h + 4), slice(4 * (h // 2), 4 * (h // 2) + 4)
            head_out, head_pattern = slow_head(
                layer.W_Q(x)[b, :, mine], layer.W_K(y)[b, :, shared], layer.W_V(y)[b, :, shared],
                scale=0.5, visible=lambda i, j: bool(mask[i, j]),
                key_shift=_shift(relative.keys, 2), value_shift=_shift(relative.values, 2),
            )  # fmt: skip
            assert torch.allclose(pattern[b, h], head_pattern, **CLOSE)
            z.append(head_out)
        assert torch.allclose(out[b], layer.W_O(torch.cat(z, -1)), **CLOSE)


def test_with_tables_of_zero_it_is_plain_attention():
    relative = RelativePositions(4, max_distance=3)
    q, k, v = torch.randn(3, 2, 6, 4)
    assert not torch.allclose(relative(q, k, v).output, attend(q, k, v).output, **CLOSE)
    relative.keys.data.zero_()
    relative.values.data.zero_()
    assert torch.allclose(relative(q, k, v).output, attend(q, k, v).output, **CLOSE)


def test_a_table_can_make_a_previous_token_head_of_any_input():
    relative = RelativePositions(4, max_distance=3)
    relative.keys.data.zero_()
    relative.keys.data[2] = 50.0  # the row of distance −1
    q = torch.rand(6, 4) + 1
    pattern = relative(q, torch.randn(6, 4), torch.randn(6, 4), return_pattern=True).pattern
    assert torch.allclose(pattern.diagonal(-1), torch.ones(5))


@pytest.mark.parametrize("return_pattern", [False, True])
def test_the_pattern_comes_only_when_asked_for(return_pattern):
    layer = roughen(MultiHeadAttention(16, 4, relative=RelativePositions(4, max_distance=3)))
    (x,) = streams(5)
    pattern = layer(x, x, x, return_pattern=return_pattern).pattern
    assert (pattern is not None) == return_pattern
    if return_pattern:
        assert torch.allclose(pattern.sum(-1), torch.ones(2, 4, 5))


def test_both_tables_are_learned_with_the_layer():
    layer = MultiHeadAttention(16, 4, relative=RelativePositions(4, max_distance=3))
    (x,) = streams(5)
    layer(x, x, x).output.square().sum().backward()
    assert layer.relative.keys.shape == layer.relative.values.shape == (7, 4)
    for table in (layer.relative.keys, layer.relative.values):
        assert bool((table.grad != 0).any(-1).all())


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 5), (5, 3)])
def test_without_clipping_too_long_an_input_is_refused(queries, keys):
    x, y = torch.randn(2, queries, 4), torch.randn(2, keys, 4)
    enough = RelativePositions(4, max_distance=4, clip=False)
    assert enough(x, y, y).output.shape == (2, queries, 4)
    with pytest.raises(ShapeError, match=r"5 positions has distances up to 4, .* max_distance 3"):
        RelativePositions(4, max_distance=3, clip=False)(x, y, y)


def test_a_negative_distance_and_another_width_are_refused():
    with pytest.raises(ShapeError, match="max_distance is -1"):
        RelativePositions(4, max_distance=-1)
    relative, wide = RelativePositions(4, max_distance=2), torch.randn(2, 5, 6)
    with pytest.raises(ShapeError, match=r"query has shape \(2, 5, 6\).* 4 long"):
        relative(wide, wide, wide)
    with pytest.raises(ShapeError, match=r"value has shape \(2, 5, 6\).* 4 long"):
        relative(wide[..., :4], wide[..., :4], wide)
