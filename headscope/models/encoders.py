"""Models with an encoder, whose tokens see those after them too."""

from __future__ import annotations

from typing import Any

from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
)

from headscope.errors import ModelError
from headscope.models.layout import Layout, has_stacks, looks_both_ways

LONGEST = 512
"""Tokens of a window of an encoder's text at most: every row of so short a window is read whole."""
_DISENTANGLED = ("deberta", "deberta-v2")
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
        ModelError: its attention is no softmax over products of queries and keys.
    """
    if config.model_type in _DISENTANGLED:
        raise ModelError(
            f"{name}: a {config.model_type} has disentangled attention, whose scores are sums of "
            "products with positions too, gathered anew for each pair; headscope does not read it"
        )
    if has_stacks(config):
        return AutoModelForSeq2SeqLM
    if not looks_both_ways(config):
        return AutoModelForCausalLM
    stated = (config.architectures or [_WITH_MASKS])[0]
    if stated.endswith(_WITH_MASKS) or stated in _SAME_AS_MASKED:
        return AutoModelForMaskedLM
    return AutoModel


def cut_note(stated: Layout, asked: int | None, context: int) -> tuple[str, ...]:
    """What is to be said where longer windows were asked for than are read of an encoder.

    Args:
        stated: what its configuration says.
        asked: tokens of the longest window that was asked for; None for the longest there is.
        context: its longest input.
    """
    longest = min(context, LONGEST)
    if asked is None or asked <= longest or not (stated.both_ways or stated.stacks):
        return ()
    return (f"windows of {asked:,} tokens were asked for; an encoder's are cut at {longest:,}",)


def refuse_encoder(model: Any, what: str) -> None:
    """Refuse what is about predicting the next token.

    Args:
        model: a loaded model.
        what: was asked for, for the message.

    Raises:
        ModelError: the model is an encoder, or has one beside its decoder.
    """
    if model.stacks:
        raise ModelError(
            f"{model.name}: {what} is about predicting the next token of one text, and a model "
            f"with an encoder and a decoder ({model.architecture}) reads two; {_WORK}"
        )
    if model.both_ways:
        raise ModelError(
            f"{model.name}: {what} is about predicting the next token, and an encoder "
            f"({model.architecture}) predicts none; {_WORK}"
        )


_WORK = "classify, report, show, heads, why, atlas, compare and verify work with it"
