"""Check, by a configuration alone, that headscope reads the family of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headscope.errors import ModelError
from headscope.heads import layer_ranges
from headscope.models.layout.table import find_layout

READ = (
    "headscope reads language models whose tokens attend to each other by softmax attention; "
    "score_patterns scores patterns of any model"
)


def check_family(name: str, entries: Mapping[str, Any]) -> None:
    """Refuse a family that headscope does not read.

    A decoder or an encoder without a row in the table of layouts passes: its patterns are tested
    later.

    Raises:
        ModelError: the model has an encoder and a decoder, or is not a language model.
    """
    model_type = entries.get("model_type")
    if not isinstance(model_type, str) or find_layout(model_type) is not None:
        return
    kind = None
    if entries.get("index_topk"):
        kind = "a decoder that attends only to the keys that a learned index picks"
    elif model_type == "falcon" and entries.get("alibi"):
        kind = "a decoder to whose scores transformers' eager attention adds ALiBi twice"
    else:
        # importing transformers takes two seconds
        from transformers.models.auto import modeling_auto as auto
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

        is_decoder = model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        fills_in = model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        has_two_stacks = model_type in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
        # transformers itself refuses a type that it does not know
        is_known = model_type in CONFIG_MAPPING_NAMES
        if entries.get("is_encoder_decoder", has_two_stacks and not is_decoder):
            kind = "a model with an encoder and a decoder"
        elif is_known and not (is_decoder or fills_in):
            kind = "not a language model"
    if kind is not None:
        raise ModelError(f"{name}: {model_type} is {kind}; {READ}")


def refuse_encoder(model: Any, task: str) -> None:
    """Refuse what is about predicting the next token.

    Raises:
        ModelError: the model is an encoder.
    """
    if not model.attention_kind.predicts_next:
        raise ModelError(
            f"{model.name}: {task} does not take an encoder ({model.architecture}), which predicts "
            "no next token"
        )


def refuse_mixed_heads(model: Any) -> None:
    """Refuse what changes or reads single heads' outputs where W_O does not read them apart.

    Raises:
        ModelError: the model mixes its heads' outputs before W_O.
    """
    if model.mixed_layers:
        raise ModelError(
            f"{model.name}: {layer_ranges(model.mixed_layers)} of a {model.architecture} mix the "
            "outputs of their heads before W_O, so that no part of what W_O reads is the output of "
            "one head; attention patterns are read all the same"
        )
