from __future__ import annotations

import pytest
import torch
from torch import nn

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference import (
    MultiHeadAttention,
    RelativePositions,
    Rotary,
    attend,
    attend_fast,
)
from tests.studies.anatomy.reference.slow import CLOSE, roughen, slow_head, streams


def test_one_head_is_single_head_attention_exactly():
    layer = roughen(MultiHeadAttention(16, 1, causal=True))
    (x,) = streams(6)
    q, k, v = layer.W_Q(x), layer.W_K(x), layer.W_V(x)
    single = attend(q, k, v, causal=True, return_pattern=True)
    out, pattern = layer(x, x, x, return_pattern=True)
    assert torch.equal(out, layer.W_O(single.output))
    assert torch.equal(pattern[:, 0], single.pattern)
    # torch has other kernels for three axes than for four, so that the head keeps its axis here
    fast = attend_fast(q[:, None], k[:, None], v[:, None], causal=True).output[:, 0]
    assert torch.equal(layer(x, x, x).output, layer.W_O(fast))


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 12, 24])
def test_the_matrices_hold_four_d_squared_weights_however_many_heads(heads):
    layer = MultiHeadAttention(24, heads, bias=False)
    assert sum(parameter.numel() for parameter in layer.parameters()) == 4 * 24**2


@pytest.mark.parametrize(("kv_heads", "weights"), [(1, 640), (2, 768), (4, 1024)])
def test_fewer_key_value_heads_have_fewer_weights(kv_heads, weights):
    layer = MultiHeadAttention(16, 4, n_kv_heads=kv_heads, bias=False)
    assert sum(parameter.numel() for parameter in layer.parameters()) == weights


def test_every_head_equals_a_loop_over_plain_numbers_in_cross_attention():
    """Keys and values of different sequences, too, and two heads to a key/value head."""
    layer = roughen(MultiHeadAttention(16, 4, n_kv_heads=2))
    x, y, w = streams(3, 5, 5)
    mask = torch.rand(2, 1, 3, 5) < 0.7
    out, pattern = layer(x, y, w, mask=mask, return_pattern=True)
    assert pattern.shape == (2, 4, 3, 5)
    for b in range(2):
        z = []
        for h in range(4):
            mine, shared = slice(4 * h, 4 * h + 4), slice(4 * (h // 2), 4 * (h // 2) + 4)
            head_out, head_pattern = slow_head(
                layer.W_Q(x)[b, :, mine], layer.W_K(y)[b, :, shared], layer.W_V(w)[b, :, shared],
                scale=0.5, visible=lambda i, j, b=b: bool(mask[b, 0, i, j]),
            )  # fmt: skip
            assert torch.allclose(pattern[b, h], head_pattern, **CLOSE)
            z.append(head_out)
        expected = torch.cat(z, dim=-1) @ layer.W_O.weight.T + layer.W_O.bias
        assert torch.allclose(out[b], expected, **CLOSE)


def test_it_equals_torch_s_own_multi_head_attention():
    theirs = roughen(nn.MultiheadAttention(16, 4, batch_first=True))
    ours = MultiHeadAttention(16, 4)
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    for projection, weight, bias in zip(
        (ours.W_Q, ours.W_K, ours.W_V), weights, biases, strict=True
    ):
        projection.weight.data, projection.bias.data = weight, bias
    ours.W_O.weight.data, ours.W_O.bias.data = theirs.out_proj.weight, theirs.out_proj.bias
    x, y = streams(4, 6)
    mask = torch.rand(4, 6) < 0.7
    mask[:, 0] = True
    out, pattern = ours(x, y, y, mask=mask, return_pattern=True)
    # torch's module takes True where a query may not look
    expected, expected_pattern = theirs(x, y, y, attn_mask=~mask, average_attn_weights=False)
    assert torch.allclose(out, expected, **CLOSE)
    assert torch.allclose(pattern, expected_pattern, **CLOSE)


def test_shared_key_value_heads_equal_heads_with_the_same_keys_and_values():
    shared = roughen(MultiHeadAttention(16, 4, n_kv_heads=1))
    full = MultiHeadAttention(16, 4)
    full.load_state_dict(
        {
            name: x.repeat(4, *[1] * (x.ndim - 1)) if name[:3] in ("W_K", "W_V") else x
            for name, x in shared.state_dict().items()
        }
    )
    (x,) = streams(6)
    assert torch.allclose(shared(x, x, x).output, full(x, x, x).output, **CLOSE)


@pytest.mark.parametrize("causal", [False, True])
def test_only_a_causal_layer_is_blind_to_later_tokens(causal):
    layer = roughen(MultiHeadAttention(16, 4, causal=causal, rotary=Rotary(4)))
    (x,) = streams(6)
    changed = x.clone()
    changed[:, 4:] = torch.randn(2, 2, 16)
    before, after = layer(x, x, x).output, layer(changed, changed, changed).output
    assert torch.allclose(before[:, :4], after[:, :4], **CLOSE) == causal
    assert not torch.allclose(before[:, 4:], after[:, 4:], **CLOSE)


def _heads_that_matter(layer: MultiHeadAttention, x: torch.Tensor) -> torch.Tensor:
    """[feature head]: whether a head's W_Q, W_K or W_V moves an output feature, by gradient."""
    weights = [layer.W_Q.weight, layer.W_K.weight, layer.W_V.weight]
    out = layer(x, x, x).output
    found = torch.zeros(16, 4, dtype=torch.bool)
    for feature in range(16):
        for gradient in torch.autograd.grad(out[..., feature].sum(), weights, retain_graph=True):
            found[feature] |= (gradient.reshape(4, -1) != 0).any(-1)
    return found


def test_without_w_o_no_output_feature_depends_on_more_than_one_head():
    layer = roughen(MultiHeadAttention(16, 4))
    (x,) = streams(5)
    assert bool(_heads_that_matter(layer, x).all())
    layer.W_O = nn.Identity()
    own = torch.eye(4, dtype=torch.bool).repeat_interleave(4, 0)
    assert torch.equal(_heads_that_matter(layer, x), own)


def test_texts_of_a_batch_do_not_meet():
    layer = roughen(MultiHeadAttention(16, 4))
    (x,) = streams(5)
    assert torch.allclose(layer(x, x, x).output[:1], layer(*[x[:1]] * 3).output, **CLOSE)


def test_a_padded_text_gives_what_it_gives_alone():
    layer = roughen(MultiHeadAttention(16, 4))
    (x,) = streams(6)
    lengths = torch.tensor([4, 6])
    mask = (torch.arange(6) < lengths[:, None])[:, None, None, :]
    out = layer(x, x, x, mask=mask).output
    short = x[:1, :4]
    assert torch.allclose(out[:1, :4], layer(short, short, short).output, **CLOSE)
    assert torch.allclose(out[1], layer(x, x, x).output[1], **CLOSE)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 5, 12)] * 3, r"query has shape \(2, 5, 12\); asked for is \(batch, position, 16\)"),
        ([(2, 5, 16), (2, 5, 12), (2, 5, 16)], r"key has shape \(2, 5, 12\)"),
        ([(2, 5, 16), (2, 5, 16), (2, 5, 12)], r"value has shape \(2, 5, 12\)"),
        ([(5, 16)] * 3, r"query has shape \(5, 16\); asked for is \(batch"),
        ([(1, 2, 5, 16)] * 3, r"query has shape \(1, 2, 5, 16\)"),
        ([(2, 5, 16), (3, 5, 16), (3, 5, 16)], r"query \(2, 5, 16\), key \(3, 5, 16\)"),
        ([(2, 5, 16), (2, 6, 16), (2, 7, 16)], r"key \(2, 6, 16\) and value \(2, 7, 16\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(shapes, message):
    with pytest.raises(ShapeError, match=message):
        MultiHeadAttention(16, 4)(*[torch.randn(shape) for shape in shapes])


def test_a_causal_layer_refuses_two_lengths():
    x, y = streams(4, 6)
    with pytest.raises(ShapeError, match="4 queries over 6 keys"):
        MultiHeadAttention(16, 4, causal=True)(x, y, y)


def test_positions_for_another_width_of_head_are_refused():
    with pytest.raises(ShapeError, match="6 features are to be turned, but d_head is 4"):
        MultiHeadAttention(16, 4, rotary=Rotary(6))
    with pytest.raises(ShapeError, match="of width 8, but d_head is 4"):
        MultiHeadAttention(16, 4, relative=RelativePositions(8, max_distance=2))
