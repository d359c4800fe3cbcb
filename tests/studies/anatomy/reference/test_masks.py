from __future__ import annotations

import pytest
import torch

from headscope.errors import HeadscopeError, ShapeError
from headscope.studies.anatomy.reference import attend, attend_fast, causal_mask

PATHS = pytest.mark.parametrize("path", [attend, attend_fast])


def test_a_causal_mask_shows_itself_and_what_came_before():
    assert causal_mask(3).tolist() == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


@PATHS
def test_causality_and_a_mask_together_hide_what_either_hides(path):
    q, k, v = torch.randn(3, 2, 5, 4)
    mask = torch.rand(5, 5) < 0.6
    mask[:, 0] = True
    both = path(q, k, v, mask=mask & causal_mask(5)).output
    assert torch.equal(path(q, k, v, mask=mask, causal=True).output, both)
    assert not torch.allclose(path(q, k, v, mask=mask).output, both)
    assert not torch.allclose(path(q, k, v, causal=True).output, both)


@PATHS
def test_causal_attention_wants_one_sequence(path):
    with pytest.raises(ShapeError, match="causal attention of 5 queries over 6 keys"):
        path(torch.randn(2, 5, 4), torch.randn(2, 6, 4), torch.randn(2, 6, 4), causal=True)


@PATHS
@pytest.mark.parametrize("shape", [(5, 6), (4, 5), (2, 1, 5, 5), (3, 5, 5)])
def test_a_mask_that_does_not_stretch_is_refused_with_both_shapes(path, shape):
    q, k, v = torch.randn(3, 2, 5, 4)
    with pytest.raises(ShapeError) as error:
        path(q, k, v, mask=torch.ones(shape, dtype=torch.bool))
    assert str(shape) in str(error.value)
    assert "(2, 5, 5)" in str(error.value)


@PATHS
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_mask_of_numbers_is_refused(path, dtype):
    q, k, v = torch.randn(3, 2, 5, 4)
    with pytest.raises(ShapeError, match=f"type {dtype} came; asked for is bool"):
        path(q, k, v, mask=causal_mask(5).to(dtype))


@PATHS
@pytest.mark.parametrize("shape", [(5, 5), (1, 5), (5, 1), (3, 1, 5, 5), (2, 5, 5), (3, 2, 1, 5)])
def test_a_mask_stretches_to_the_scores(path, shape):
    q, k, v = torch.randn(3, 3, 2, 5, 4)
    mask = torch.rand(shape) < 0.7
    stretched = mask.expand(3, 2, 5, 5).contiguous()
    assert not stretched.all()
    expected = attend(q, k, v, mask=stretched).output
    assert torch.allclose(path(q, k, v, mask=mask).output, expected, atol=1e-6)


def test_a_shape_error_is_one_of_ours_and_a_value_error():
    assert issubclass(ShapeError, HeadscopeError)
    assert issubclass(ShapeError, ValueError)
