"""The framework's attention kernels: a layer's output, and the log-sum-exp of every row of scores.

What no kernel knows is computed some rows at a time.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.models.engines.engine import Tile
from headscope.models.engines.rows import (
    PLAIN,
    Beside,
    Heads,
    Keys,
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


def attend(
    query: Heads, key: Keys, value: Seen, scale: float, beside: Beside = PLAIN
) -> tuple[Values, Sums]:
    """Softmax attention's output, and each row's log-sum-exp with that of the sink.

    Args:
        query: of each head.
        key: of each head, or of each group of heads.
        value: likewise, of any width.
        scale: by which q·k is multiplied.
        beside: mask, bias, cap and sink; causal attention without any of them by default.
    """
    backward = torch.is_grad_enabled() and query.requires_grad
    # no kernel caps; and none has a derivative of the sums by which a sink scales the output
    if beside.cap is not None or (beside.sink is not None and backward):
        return by_rows(query, key, value, scale, beside)
    output, normaliser = _kernel(query, key, value, scale, beside)
    if beside.sink is None:
        return output, normaliser
    whole = torch.logaddexp(normaliser, beside.sink.to(normaliser)[:, None])
    return output * (normaliser - whole).exp()[..., None].to(output.dtype), whole


def by_rows(
    query: Heads, key: Keys, value: Seen, scale: float, beside: Beside
) -> tuple[Values, Sums]:
    """The same by plain products, some rows at a time, on any device; differentiable."""
    groups = query.shape[1] // value.shape[1]
    value = value.repeat_interleave(groups, 1) if groups > 1 else value
    outputs, sums = [], []
    for tile in _tiles(query, key, beside):
        scores = tile_scores(query, key, scale, beside, tile)
        normaliser = normaliser_of(scores, beside)
        pattern = (scores - normaliser[..., None]).exp().to(value.dtype)
        outputs.append(pattern @ value[:, :, : tile.keys])
        sums.append(normaliser)
    return torch.cat(outputs, 2), torch.cat(sums, 2)


def tiled_normaliser(query: Heads, key: Keys, scale: float, beside: Beside = PLAIN) -> Sums:
    """The log-sum-exp of every row of scores, some rows at a time, by any device."""
    parts = (tile_scores(query, key, scale, beside, tile) for tile in _tiles(query, key, beside))
    return torch.cat([normaliser_of(part, beside) for part in parts], -1)


def _tiles(query: Heads, key: Keys, beside: Beside) -> list[Tile]:
    windows, _, length, _ = query.shape
    width = key.shape[2] if beside.later else None
    parts = [slice(start, min(start + ROWS, length)) for start in range(0, length, ROWS)]
    return [Tile(slice(0, windows), part, width) for part in parts]


def _kernel(
    query: Heads, key: Keys, value: Seen, scale: float, beside: Beside
) -> tuple[Values, Sums]:
    width, bias = value.shape[-1], beside.bias
    query, key, value = _same_width(query, key, value)
    plain = Beside(bias, later=beside.later)
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
        elif bias is None:
            output = nn.functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=scale
            )
            normaliser = tiled_normaliser(query, key, scale)
        else:
            output, normaliser = by_rows(query, key, value, scale, plain)
    return output[..., :width], normaliser


def _cuda(
    query: Heads, key: Keys, value: Seen, scale: float, beside: Beside
) -> tuple[Values, Sums]:
    bias = beside.bias
    half = query.dtype in (torch.float16, torch.bfloat16)
    if bias is not None and not _kernel_adds_biases(query.device, query.dtype):
        return by_rows(query, key, value, scale, beside)
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
    """Whether this card's kernel gives what plain products give with a bias, on a small input.

    The text on which an engine is checked is shorter than most windows.
    """
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 2, 21, 16, generator=generator) for _ in range(3))
    window = torch.ones(21, 21).tril().triu(-5)
    bias = torch.zeros(1, 1, 21, 21).masked_fill(window == 0, -torch.inf)
    expected = by_rows(query, key, value, 0.25, Beside(bias))
    query, key, value = (each.to(device, dtype) for each in (query, key, value))
    try:
        found = _efficient(query, key, value, 0.25, bias.to(device))
    except RuntimeError:
        return False
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(own.float().cpu(), plain, atol=0.05) for own, plain in pairs)


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
