"""Attention as transformers calls it: a registered function that lets a reader look on.

transformers hands every layer's queries and keys, after rotary embedding, to a function that is
registered by a name, with whatever that layer has beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from headscope.errors import ModelError
from headscope.models.engines.kernels import softmax_attend
from headscope.models.engines.log_attention import Heads, Keys, Scores, ScoreTerms, Seen

NAME = "headscope"
_UNKNOWN = ("head_mask", "indices", "block_indices", "sinks")
"""Arguments by which a model asks for what is no bias, cap or sink that is known."""

OnScores = Callable[[int, Scores], None]
"""Called with a layer and what its rows of scores are made of."""

_reader: OnScores | None = None
_masked: set[int] = set()


@contextmanager
def capturing(take: OnScores) -> Iterator[None]:
    """Within this context each layer's scores are handed on as they come."""
    global _reader
    _reader = take
    try:
        yield
    finally:
        _reader = None


@contextmanager
def noting_windows() -> Iterator[set[int]]:
    """The reaches of the masks that are asked for within this context, in tokens."""
    _masked.clear()
    yield _masked


def register_attention(name: str, function: Callable[..., Any]) -> None:
    """Let models attend by a function; masks reach it as they reach `attention`."""
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, mask_of)


def attention(
    module: nn.Module,
    query: Heads,
    key: Keys,
    value: Seen,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Float[Tensor, "batch position head _"], None]:
    """Softmax attention for transformers, with a look at what the reader asks for.

    Raises:
        ModelError: the model asks for another kind of attention.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    terms = score_terms(module, query, key, attention_mask, options)
    output, normaliser = softmax_attend(query, key, value, scale, terms)
    if _reader is not None:
        layer: Any = module.layer_idx
        _reader(layer, Scores(query, key, scale, normaliser, terms, value))
    return output.transpose(1, 2).contiguous(), None


def score_terms(
    module: nn.Module, query: Heads, key: Keys, mask: Tensor | None, options: dict[str, Any]
) -> ScoreTerms:
    """The parts of a layer's scores but its queries, keys and scale.

    Args:
        module: the layer's attention.
        query: its queries.
        key: its keys.
        mask: as transformers hands it on.
        options: the other arguments that it hands on.

    Raises:
        ModelError: it is none of what `ScoreTerms` holds.
    """
    unknown = [name for name in _UNKNOWN if options.get(name) is not None]
    window = options.get("sliding_window")
    if mask is None and window is not None and window < query.shape[2]:
        unknown.append(f"a sliding_window of {window} without a mask")
    sees_future = not getattr(module, "is_causal", True)
    if unknown:
        raise ModelError(f"the fused engine does not know {', '.join(unknown)}")
    bias = _bias(mask, options.get("position_bias"), query, key, sees_future=sees_future)
    if bias is None and sees_future:
        exact = torch.promote_types(query.dtype, torch.float32)
        bias = query.new_zeros(1, 1, query.shape[2], key.shape[2], dtype=exact)
    return ScoreTerms(bias, options.get("softcap"), options.get("s_aux"), sees_future)


def mask_of(*, kv_length: int, local_size: int | None = None, **options: Any) -> Tensor | None:
    """No mask where every token sees all earlier ones, and a mask wherever some are hidden.

    transformers leaves the mask out for a function of attention that has none registered.
    """
    if local_size is not None:
        _masked.add(local_size)
        if local_size >= kv_length:
            local_size = None  # a window that holds the whole text hides nothing
    mask: Tensor | None = sdpa_mask(kv_length=kv_length, local_size=local_size, **options)
    return mask


register_attention(NAME, attention)


def _bias(
    mask: Tensor | None,
    position_bias: Tensor | None,
    query: Heads,
    key: Keys,
    *,
    sees_future: bool,
) -> Float[Tensor, "_ _ query key"] | None:
    """Numbers added to the scores, −∞ where nothing is seen; None for plain causal attention."""
    if mask is None and position_bias is None:
        return None
    queries, keys = query.shape[2], key.shape[2]
    if mask is None:
        mask = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=query.device)
        mask = mask if sees_future else mask.tril()
    mask = mask[..., :queries, :keys]
    if mask.stride(0) == 0:
        mask = mask[:1]  # every window has the same
    exact = torch.promote_types(query.dtype, torch.float32)
    if mask.dtype == torch.bool:
        added = torch.zeros(mask.shape, dtype=exact, device=mask.device)
        hidden = ~mask
    else:
        added = mask.to(exact)
        hidden = mask <= torch.finfo(mask.dtype).min / 2  # transformers' own −∞
    if position_bias is not None:
        added = added + position_bias.to(exact)
    return added.masked_fill(hidden, -torch.inf)
