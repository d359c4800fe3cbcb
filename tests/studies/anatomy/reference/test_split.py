from __future__ import annotations

import pytest
import torch

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference import MultiHeadAttention
from headscope.studies.anatomy.reference.multi_head import merge_heads, share_heads, split_heads


def test_heads_are_neighbouring_features():
    x = torch.randn(2, 5, 12)
    heads = split_heads(x, 3)
    assert all(torch.equal(heads[:, h], x[..., 4 * h : 4 * h + 4]) for h in range(3))
    assert torch.equal(merge_heads(heads), x)


def test_a_key_value_head_serves_heads_in_a_row():
    x = torch.randn(2, 2, 5, 4)
    shared = share_heads(x, 6)
    assert [bool(torch.equal(shared[:, h], x[:, 0])) for h in range(6)] == [True] * 3 + [False] * 3
    assert torch.equal(shared[:, 5], x[:, 1])


@pytest.mark.parametrize(("d_model", "heads"), [(64, 5), (64, 0), (64, 128), (64, -4)])
def test_heads_that_do_not_divide_d_model_are_refused(d_model, heads):
    with pytest.raises(ShapeError, match=f"d_model {d_model} cannot .* over {heads} heads"):
        MultiHeadAttention(d_model, heads)


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 3), (8, 0), (2, 8), (8, -2)])
def test_key_value_heads_that_do_not_divide_heads_are_refused(heads, kv_heads):
    with pytest.raises(ShapeError, match=f"{heads} heads cannot share {kv_heads} key/value heads"):
        MultiHeadAttention(64, heads, n_kv_heads=kv_heads)
