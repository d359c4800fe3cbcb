"""Check that what an engine gives is causal attention."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from headscope.errors import ModelError
from headscope.models.engines.engine import Engine, attends_to_hidden, stream_patterns
from headscope.models.engines.probe import check_numbers

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 2e-2}
"""How far a row's sum may be from 1: rounding of the dtype over a few dozen keys."""


TOKENS = 12
"""Of each text that is run."""


def check_patterns(
    engine: Engine,
    name: str,
    heads: int,
    vocabulary_size: int,
    device: str,
    *,
    layers: Collection[int] | None = None,
) -> None:
    """Run one short batch and check that what the hooks give is attention, causal but of encoders.

    Args:
        engine: runs the model.
        name: of the model, for messages.
        heads: of a layer.
        vocabulary_size: of the model.
        device: where it runs.
        layers: the numbers of those that are to give a pattern; as many as the engine has, from 0
            on, if None.

    Raises:
        ModelError: a layer gave no pattern, another number of heads than configured, rows that
            do not sum to 1, or attention to later positions; the message names the layer.
    """
    checked: set[int] = set()
    length = TOKENS

    def check(layer: int, pattern: Tensor) -> None:
        checked.add(layer)
        title = f"{name}: layer {layer}"
        if tuple(pattern.shape) != (2, heads, length, length):
            raise ModelError(
                f"{title} gave a pattern of shape {tuple(pattern.shape)}, but the configuration "
                f"says batch 2, {heads} heads, {length} × {length}"
            )
        check_numbers(title, pattern)
        row_sums = pattern.float().sum(-1)
        excess = row_sums - 1
        if getattr(engine, "sinks", False):
            excess = excess.clamp_min(0)  # a sink takes a share of a row that no token has
        worst = float(excess.abs().nan_to_num(nan=torch.inf).max())
        if worst > TOLERANCE.get(pattern.dtype, 1e-2):
            raise ModelError(f"{title}: rows of the pattern do not sum to 1 (off by {worst:.3g})")
        if attends_to_hidden(pattern, engine.attention_kind):
            raise ModelError(f"{title} attends to later positions: not a causal model")

    tokens = torch.arange(2 * length).reshape(2, length) % vocabulary_size
    stream_patterns(engine, tokens.to(device), check)
    missing = sorted({*(range(engine.layers) if layers is None else layers)} - checked)
    if missing:
        raise ModelError(
            f"{name}: no attention pattern from layer {', '.join(map(str, missing))}; "
            "headscope reads softmax attention only"
        )
