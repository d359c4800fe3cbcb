"""Encoders and hybrids: the class that reads them, notes on what is not read, and refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.errors import ModelError, RunError
from headscope.heads import head_name, told_of
from headscope.models.families import check_family
from headscope.models.layout.dimensions import AttentionDimensions, attention_kind

LONGEST = 512
"""Tokens of a window of an encoder's text at most: every row of so short a window is read whole."""
_WITH_MASKS = "ForMaskedLM"
_SAME_AS_MASKED = ("BertForPreTraining",)
"""Architectures that hold all of the masked language model, and more beside it."""


def network_class(name: str, config: Any) -> Any:
    """The class of transformers that builds or loads a model of this configuration.

    An encoder that was not trained to fill in masked tokens, or whose head for that is not in its
    files, is read without it: its attention is the same.

    Args:
        name: of the model, for messages.
        config: a configuration of transformers.

    Raises:
        ModelError: headscope does not read this family.
    """
    check_family(name, config.to_dict())
    if attention_kind(config) == CAUSAL:
        return AutoModelForCausalLM
    architecture = (config.architectures or [_WITH_MASKS])[0]
    if architecture.endswith(_WITH_MASKS) or architecture in _SAME_AS_MASKED:
        return AutoModelForMaskedLM
    return AutoModel


def cut_note(
    dimensions: AttentionDimensions, requested: int | None, context: int
) -> tuple[str, ...]:
    """Note that windows of an encoder are shorter than those that were asked for.

    Args:
        dimensions: as its configuration states them.
        requested: tokens of the longest window that was asked for; None for the longest there is.
        context: its longest input.
    """
    longest = min(context, LONGEST)
    if requested is None or requested <= longest or dimensions.attention_kind != BIDIRECTIONAL:
        return ()
    return (f"windows of {requested:,} tokens were asked for; an encoder's are cut at {longest:,}",)


def refuse_encoder(model: Any, task: str) -> None:
    """Refuse what is about predicting the next token.

    Args:
        model: a loaded model.
        task: what was asked for, for the message.

    Raises:
        ModelError: the model is an encoder.
    """
    if not model.attention_kind.predicts_next:
        raise ModelError(
            f"{model.name}: {task} does not take an encoder ({model.architecture}), which predicts "
            "no next token"
        )


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
        layer: its number in the model.
        head: its number in the layer.

    Raises:
        RunError: it has no such layer, or not so many heads, or that layer has no heads at all.
    """
    name = head_name(layer, head)
    if layer in model.others:
        raise RunError(f"no head {name} in {model.name}: {told_of(model.others)}")
    last = model.attention_layers[-1]
    if layer > last or head >= model.heads:
        last_name = head_name(last, model.heads - 1)
        raise RunError(f"no head {name} in {model.name}; they go up to {last_name}")
