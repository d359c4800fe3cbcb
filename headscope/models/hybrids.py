"""Hybrids: models of which only some layers have softmax attention.

The others mix tokens by a convolution or by a state that is updated from token to token; no weight
of theirs says how much one token looks at another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headscope.errors import RunError
from headscope.heads import head_name, told_of

ONLY_FUSED = (
    "such a model is read by the fused engine alone; what takes TransformerLens' view of a model "
    "(--engine lens, weights) does not know it"
)


def hybrid_note(others: Sequence[int]) -> tuple[str, ...]:
    """Note on the layers of a hybrid that are not read; none of any other model."""
    return (f"{told_of(others)}: what they mix is not read",) if others else ()


def check_head_exists(model: Any, layer: int, head: int) -> None:
    """Refuse a head that a model has not.

    Args:
        model: a loaded model.
        layer: its number in the model, counted through all stacks.
        head: its number in the layer.

    Raises:
        RunError: it has no such layer, or not so many heads, or that layer has no heads at all.
    """
    name = head_name(layer, head, model.head_names)
    if layer in model.others:
        raise RunError(f"no head {name} in {model.name}: {told_of(model.others)}")
    last = model.attention_layers[-1]
    if layer > last or head >= model.heads:
        last_name = head_name(last, model.heads - 1, model.head_names)
        raise RunError(f"no head {name} in {model.name}; they go up to {last_name}")
