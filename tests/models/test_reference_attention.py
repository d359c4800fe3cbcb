"""Reference attention: torch's own, one head, slow loops, and every layout's eager attention."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
import torch
from einops import rearrange
from torch import nn

import headscope as hs
from headscope.causal.intervention import AttentionChange
from headscope.errors import HeadscopeError
from headscope.models.layout.table import LAYOUTS
from headscope.models.load import load_model
from headscope.models.reference_attention import (
    attention_pattern,
    mix_values,
    reference_attention,
    single_head_attention,
    split_heads,
)
from tests.models.every_layout import attention_of, own_network, save_tiny

BATCH, POSITIONS, D_MODEL, HEADS, D_HEAD = 2, 7, 12, 4, 3
FUSED = [row.model_type for row in LAYOUTS if row.engine == "fused"]
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@dataclass
class Weights:
    """An input and the four matrices."""

    x: torch.Tensor
    w_q: torch.Tensor
    w_k: torch.Tensor
    w_v: torch.Tensor
    w_o: torch.Tensor


def weights(groups: int, seed: int = 0) -> Weights:
    rng = torch.Generator().manual_seed(seed)
    width, shared = HEADS * D_HEAD, groups * D_HEAD
    return Weights(
        x=torch.randn(BATCH, POSITIONS, D_MODEL, generator=rng),
        w_q=torch.randn(D_MODEL, width, generator=rng),
        w_k=torch.randn(D_MODEL, shared, generator=rng),
        w_v=torch.randn(D_MODEL, shared, generator=rng),
        w_o=torch.randn(width, D_MODEL, generator=rng),
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_it_is_what_a_loop_over_heads_queries_and_keys_gives(groups, causal):
    given = weights(groups)
    found = reference_attention(**vars(given), num_heads=HEADS, causal=causal)
    q, k, v = given.x @ given.w_q, given.x @ given.w_k, given.x @ given.w_v
    z = torch.zeros(BATCH, POSITIONS, HEADS * D_HEAD)
    for head in range(HEADS):
        group = head // (HEADS // groups)
        own = slice(head * D_HEAD, (head + 1) * D_HEAD)
        shared = slice(group * D_HEAD, (group + 1) * D_HEAD)
        for batch in range(BATCH):
            for query in range(POSITIONS):
                keys = range(query + 1) if causal else range(POSITIONS)
                dots = [float(q[batch, query, own] @ k[batch, key, shared]) for key in keys]
                row = torch.tensor(dots).div(D_HEAD**0.5).softmax(0)
                assert torch.allclose(found.pattern[batch, head, query, : len(row)], row, **CLOSE)
                for key, weight in zip(keys, row, strict=True):
                    z[batch, query, own] += weight * v[batch, key, shared]
    assert torch.allclose(found.output, z @ given.w_o, atol=1e-4)
    assert torch.allclose(found.pattern.sum(-1), torch.ones(BATCH, HEADS, POSITIONS))


def test_it_is_torchs_multi_head_attention():
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, bias=False, batch_first=True)
    x = torch.randn(BATCH, POSITIONS, D_MODEL)
    matrices = [part.T for part in theirs.in_proj_weight.chunk(3)]
    with torch.no_grad():
        output, pattern = theirs(x, x, x, average_attn_weights=False)
        ours = reference_attention(
            x, *matrices, theirs.out_proj.weight.T, num_heads=HEADS, causal=False
        )
    assert torch.allclose(ours.output, output, **CLOSE)
    assert torch.allclose(ours.pattern, pattern, **CLOSE)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_one_head_gives_the_bytes_of_single_head_attention(causal, seed):
    given = weights(HEADS, seed)
    many = reference_attention(**vars(given), num_heads=1, causal=causal)
    one = single_head_attention(**vars(given), causal=causal)
    assert torch.equal(many.output, one.output)
    assert torch.equal(many.pattern, one.pattern)


@pytest.mark.parametrize(
    ("columns", "num_heads"), [(12, 5), (12, 0), (9, 4), (4, 4), (24, 4), (0, 4)]
)
def test_matrices_that_do_not_divide_into_heads_are_refused(columns, num_heads):
    given = weights(HEADS)
    shared = torch.zeros(D_MODEL, columns)
    with pytest.raises(HeadscopeError, match=r"num_heads|w_k"):
        hs.reference_attention(given.x, given.w_q, shared, shared, given.w_o, num_heads=num_heads)


@dataclass(eq=False)
class ByReference(AttentionChange):
    """The attention of each layer, computed by the reference."""

    changed: frozenset[int]
    patterns: dict[int, torch.Tensor] = field(default_factory=dict)

    @property
    def layers(self):
        return self.changed

    def attend(self, call):
        terms = call.score_terms
        pattern = attention_pattern(
            call.query,
            call.key,
            causal=terms.bias is None,
            scale=call.scale,
            bias=terms.bias,
            cap=terms.cap,
            sink=terms.sink,
        )
        self.patterns[call.layer] = pattern
        return rearrange(mix_values(pattern, call.value), "b h p d -> b p h d")


@pytest.mark.parametrize("model_type", FUSED)
@torch.no_grad()
def test_it_is_the_attention_of_every_layout(model_type, tokenizer, tmp_path):
    """Queries and keys come from the layout; patterns and states are transformers' eager ones."""
    save_tiny(model_type, tokenizer, tmp_path)
    model = load_model(str(tmp_path))
    tokens = torch.randint(1, 300, (2, 64), generator=torch.Generator().manual_seed(1))
    options = model.engine.dimensions.forward_options
    change = ByReference(frozenset(model.attention_layers))
    with change.applied(model):
        ours = model.engine.network.base_model(tokens, **options)[0]
    eager = own_network(tmp_path, model_type)
    expected = attention_of(eager, tokens, model_type)
    assert len(expected) == len(change.patterns)
    for layer, pattern in zip(sorted(change.patterns), expected, strict=True):
        assert torch.allclose(change.patterns[layer], pattern, **CLOSE)
    theirs = eager.base_model(tokens, **options)[0]
    assert torch.allclose(ours, theirs, atol=1e-4 * float(theirs.abs().max()))


SLOPES = torch.tensor([2**-2, 2**-4, 2**-6, 2**-8])
"""Of ALiBi with four heads (Press et al. 2022, section 3)."""


def by_head(projected: torch.Tensor) -> torch.Tensor:
    return split_heads(projected, 8)


PROJECTED = {
    "bloom": lambda outputs: rearrange(
        outputs["self_attention.query_key_value"], "b p (h part d) -> part b h p d", part=3, d=8
    ),
    "mpt": lambda outputs: map(by_head, outputs["attn.Wqkv"].chunk(3, -1)),
    "openai-gpt": lambda outputs: map(by_head, outputs["attn.c_attn"].chunk(3, -1)),
    "xglm": lambda outputs: [by_head(outputs[f"self_attn.{name}_proj"]) for name in "qkv"],
}
"""Queries, keys and values of layouts that compute attention in code of their own."""


@pytest.mark.parametrize("model_type", PROJECTED)
@torch.no_grad()
def test_it_is_the_attention_of_layouts_with_code_of_their_own(model_type, tokenizer, tmp_path):
    save_tiny(model_type, tokenizer, tmp_path)
    network = own_network(tmp_path, model_type)
    outputs: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, inputs: object, output: torch.Tensor) -> None:
            outputs.setdefault(name, output)

        return hook

    tokens = torch.randint(1, 300, (2, 40), generator=torch.Generator().manual_seed(1))
    with ExitStack() as hooks:
        for name, module in network.named_modules():
            if ".0." in name:  # the first layer
                hook = keep(name.split(".0.")[1])
                hooks.enter_context(module.register_forward_hook(hook))
        expected = attention_of(network, tokens, model_type)[0]
    query, key, _ = PROJECTED[model_type](outputs)
    has_slopes = model_type in ("bloom", "mpt")
    bias = SLOPES[:, None, None] * torch.arange(40) if has_slopes else None
    bias = None if bias is None else bias.expand(1, -1, 40, -1)
    assert torch.allclose(attention_pattern(query, key, bias=bias), expected, **CLOSE)
