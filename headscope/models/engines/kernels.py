"""The framework's attention kernels: a layer's output, and the log-sum-exp of every row of scores;
and its kernel of GPT-2's activation.

What no attention kernel knows is computed some rows at a time.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.activations import NewGELUActivation

from headscope.models.engines.engine import Tile
from headscope.models.engines.log_attention import (
    PLAIN,
    Heads,
    Keys,
    ScoreTerms,
    Seen,
    Sums,
    Values,
    normaliser_of,
    tile_scores,
)

ROWS = 128
"""Rows of scores that exist at once where there is no kernel."""
ALIGNED = 8
"""Numbers of which CUDA's kernels want a multiple in the last axis."""
WIDEST_FLASH = 256
"""Numbers of a head that CUDA's flash kernel takes at most."""


def softmax_attend(
    query: Heads, key: Keys, value: Seen, scale: float, terms: ScoreTerms = PLAIN
) -> tuple[Values, Sums]:
    """Softmax attention's output, and each row's log-sum-exp with that of the sink.

    Args:
        query: of each head.
        key: of each head, or of each group of heads.
        value: likewise, of any width.
        scale: by which q·k is multiplied.
        terms: mask, bias, cap and sink; causal attention without any of them by default.
    """
    backward = torch.is_grad_enabled() and query.requires_grad
    # no kernel caps; and none has a derivative of the sums by which a sink scales the output
    if terms.cap is not None or (terms.sink is not None and backward):
        return by_rows(query, key, value, scale, terms)
    output, normaliser = _kernel(query, key, value, scale, terms)
    if terms.sink is None:
        return output, normaliser
    total = torch.logaddexp(normaliser, terms.sink.to(normaliser)[:, None])
    return output * (normaliser - total).exp()[..., None].to(output.dtype), total


def by_rows(
    query: Heads, key: Keys, value: Seen, scale: float, terms: ScoreTerms
) -> tuple[Values, Sums]:
    """The same by plain products, some rows at a time, on any device; differentiable."""
    groups = query.shape[1] // value.shape[1]
    value = value.repeat_interleave(groups, 1) if groups > 1 else value
    outputs, sums = [], []
    for tile in _tiles(query, key, terms):
        scores = tile_scores(query, key, scale, terms, tile)
        normaliser = normaliser_of(scores, terms)
        pattern = (scores - normaliser[..., None]).exp().to(value.dtype)
        outputs.append(pattern @ value[:, :, : tile.keys])
        sums.append(normaliser)
    return torch.cat(outputs, 2), torch.cat(sums, 2)


def fuse_activations(network: nn.Module) -> None:
    """Put torch's GELU in the place of transformers' `gelu_new`, in place.

    Both are 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))). transformers takes eight passes over the
    widest tensor of the model for it, a fifth of the time of a forward pass of GPT-2 small.
    """
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, NewGELUActivation):
                setattr(module, name, nn.GELU(approximate="tanh"))


def _tiles(query: Heads, key: Keys, terms: ScoreTerms) -> list[Tile]:
    windows, _, length, _ = query.shape
    width = key.shape[2] if terms.sees_future else None
    parts = [slice(start, min(start + ROWS, length)) for start in range(0, length, ROWS)]
    return [Tile(slice(0, windows), part, width) for part in parts]


def _kernel(
    query: Heads, key: Keys, value: Seen, scale: float, terms: ScoreTerms
) -> tuple[Values, Sums]:
    width, bias = value.shape[-1], terms.bias
    query, key, value = _same_width(query, key, value)
    plain = ScoreTerms(bias, sees_future=terms.sees_future)
    device = query.device.type
    if device == "cpu":
        mask = None if bias is None else bias.to(query.dtype)
        output, normaliser = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, bias is None, attn_mask=mask, scale=scale
        )
    else:
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
        if device == "cuda":
            output, normaliser = _cuda(query, key, value, scale, plain)
        else:
            output, normaliser = by_rows(query, key, value, scale, plain)
    return output[..., :width], normaliser


def _cuda(
    query: Heads, key: Keys, value: Seen, scale: float, terms: ScoreTerms
) -> tuple[Values, Sums]:
    bias = terms.bias
    half = query.dtype in (torch.float16, torch.bfloat16)
    if bias is not None and not _kernel_adds_biases(query.device, query.dtype):
        return by_rows(query, key, value, scale, terms)
    if bias is None and half and query.shape[-1] <= WIDEST_FLASH:
        flash = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, 0.0, True, scale=scale
        )
        return flash[0], flash[1]
    return _efficient(query, key, value, scale, bias)


def _efficient(
    query: Heads, key: Keys, value: Seen, scale: float, bias: Tensor | None
) -> tuple[Heads, Sums]:
    mask = None if bias is None else _aligned(bias.to(query.dtype), query.shape[:2])
    output, normaliser, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, True, 0.0, bias is None, scale=scale
    )
    return output, normaliser[..., : query.shape[2]]  # the kernel pads its rows


@lru_cache(maxsize=8)
@torch.no_grad()
def _kernel_adds_biases(device: torch.device, dtype: torch.dtype) -> bool:
    """Tell whether this card's kernel gives what plain products give with a bias, on a small input.

    The text on which an engine is checked is shorter than most windows.
    """
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 2, 21, 16, generator=generator) for _ in range(3))
    window = torch.ones(21, 21).tril().triu(-5)
    bias = torch.zeros(1, 1, 21, 21).masked_fill(window == 0, -torch.inf)
    expected = by_rows(query, key, value, 0.25, ScoreTerms(bias))
    query, key, value = (x.to(device, dtype) for x in (query, key, value))
    try:
        outputs = _efficient(query, key, value, 0.25, bias.to(device))
    except RuntimeError:
        return False
    pairs = zip(outputs, expected, strict=True)
    return all(torch.allclose(output.float().cpu(), plain, atol=0.05) for output, plain in pairs)


def _aligned(
    bias: Float[Tensor, "_ _ query key"], windows_and_heads: torch.Size
) -> Float[Tensor, "window head query key"]:
    """A bias of every window and head whose rows begin where the kernel can read them."""
    keys = bias.shape[-1]
    padded = nn.functional.pad(bias, (0, -keys % ALIGNED))
    return padded.expand(*windows_and_heads, -1, -1)[..., :keys]


def _same_width(query: Heads, key: Keys, value: Seen) -> tuple[Values, Seen, Seen]:
    """Zeros behind what is narrower: they change no product."""
    widest = max(query.shape[-1], value.shape[-1])
    if query.device.type == "cuda":
        widest += -widest % ALIGNED

    def wide(heads: Seen) -> Seen:
        missing = widest - heads.shape[-1]
        return nn.functional.pad(heads, (0, missing)) if missing else heads

    return wide(query), wide(key), wide(value)
