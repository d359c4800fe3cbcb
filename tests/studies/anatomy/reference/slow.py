"""One head's attention as loops over plain numbers, and random inputs and layers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def streams(*lengths: int, batch: int = 2, width: int = 16) -> list[Tensor]:
    return [torch.randn(batch, length, width) for length in lengths]


def roughen(module: nn.Module, spread: float = 0.4) -> nn.Module:
    """Random weights and biases, none of them 0 or 1 as they often are at the start."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=spread)
    return module.eval()


def slow_head(query, key, value, *, scale, visible, key_shift=None, value_shift=None):
    """`(output, pattern)` of one head, by lists and loops; shifts are functions of (i, j)."""
    query, key, value = query.tolist(), key.tolist(), value.tolist()
    nothing = [0.0] * len(value[0])
    output, pattern = [], []
    for i, q in enumerate(query):
        weights = []
        for j, k in enumerate(key):
            shift = [0.0] * len(k) if key_shift is None else key_shift(i, j)
            score = scale * sum(a * (b + c) for a, b, c in zip(q, k, shift, strict=True))
            weights.append(math.exp(score) if visible(i, j) else 0.0)
        total = sum(weights)
        row = [weight / total if total else 0.0 for weight in weights]
        out = list(nothing)
        for j, share in enumerate(row):
            shift = nothing if value_shift is None else value_shift(i, j)
            out = [o + share * (v + s) for o, v, s in zip(out, value[j], shift, strict=True)]
        output.append(out)
        pattern.append(row)
    return torch.tensor(output), torch.tensor(pattern)
