"""Our modules with the weights of a pretrained layer, so that each can be checked against it.

A layout is one file with `attention` and `feed_forward`, and a row in each of the two tables, by
the name of Hugging Face's class. Names have to be exact: a class that inherits from one of these
may compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from headscope.errors import ModelError
from headscope.studies.anatomy.reference.feed_forward import FeedForward
from headscope.studies.anatomy.reference.hugging_face import gpt2, gpt_neox, llama
from headscope.studies.anatomy.reference.multi_head import MultiHeadAttention
from headscope.studies.anatomy.reference.swiglu import SwiGLU

ATTENTIONS: dict[str, Callable[[Any, Any], MultiHeadAttention]] = {
    "GPT2Attention": gpt2.attention,
    "GPTNeoXAttention": gpt_neox.attention,
    "LlamaAttention": llama.attention,
}
FEED_FORWARDS: dict[str, Callable[[Any, Any], FeedForward | SwiGLU]] = {
    "GPT2MLP": gpt2.feed_forward,
    "GPTNeoXMLP": gpt_neox.feed_forward,
    "LlamaMLP": llama.feed_forward,
}


def attention_like(hf_attention: nn.Module, config: Any) -> MultiHeadAttention:
    """Multi-head attention with a copy of a Hugging Face layer's weights.

    Args:
        hf_attention: the layer, e.g. `model.transformer.h[0].attn`.
        config: the model's configuration.

    Returns:
        Attention that gives the layer's output and pattern up to rounding. It takes what the
        layer takes, which is the residual stream after its layer norm. Dropout is left out.

    Raises:
        ModelError: the layer's class is not in `ATTENTIONS`, or its rotary positions are of
            another kind than the plain one.
        ShapeError: the configuration is not that of the layer.
    """
    name = type(hf_attention).__name__
    if name not in ATTENTIONS:
        raise _unknown("attention", name, ATTENTIONS)
    return ATTENTIONS[name](hf_attention, config)


def feed_forward_like(hf_mlp: nn.Module, config: Any) -> FeedForward | SwiGLU:
    """A feed-forward block with a copy of a Hugging Face block's weights.

    Args:
        hf_mlp: the block, e.g. `model.transformer.h[0].mlp`.
        config: the model's configuration.

    Returns:
        A block that gives the same output up to rounding. Dropout is left out.

    Raises:
        ModelError: the block's class is not in `FEED_FORWARDS`, or it is gated by another
            activation than silu.
        ChoiceError: its activation is not in `ACTIVATIONS` of `reference.feed_forward`.
        ShapeError: the configuration is not that of the block.
    """
    name = type(hf_mlp).__name__
    if name not in FEED_FORWARDS:
        raise _unknown("feed-forward", name, FEED_FORWARDS)
    return FEED_FORWARDS[name](hf_mlp, config)


def _unknown(what: str, name: str, known: Iterable[str]) -> ModelError:
    return ModelError(f"{name} is no {what} layer of a known layout; known: {', '.join(known)}")
