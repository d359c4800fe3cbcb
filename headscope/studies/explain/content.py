"""Attention by tokens alone: what a head attends to if no token is read in its context.

A model runs on a text so that each token sees only itself and the first `CONTEXT` tokens. A query
and a key then depend on no other token between, before or after them, and a head's logits on the
two tokens and their distance: the QK circuit of two tokens (Elhage et al. 2021). In the first layer
they are the head's own logits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.models.engines.attention import AttentionCall, Output, overridden, softmax_attend
from headscope.models.model import Model
from headscope.models.stream import ALL_TOGETHER, LayerAttention, stream_attention, whole_patterns
from headscope.printing import one_line
from headscope.studies.explain.catalogue import Texts
from headscope.studies.explain.feature import is_word

CONTEXT = 7
"""Number of first tokens that each token sees: after the first one alone, keys are atypical."""
LOWEST = -30.0
"""Least logit: below it a key has no attention worth a count."""
LISTED_PAIRS = 3
"""Number of pairs of tokens that a label names."""


@dataclass(frozen=True, eq=False)
class LayerRows:
    """Heads of a layer on the rows of texts."""

    layer: int
    attention: Float[Tensor, "head row key"]
    """The heads' attention; a row sums to 1."""
    content: Float[Tensor, "head row key"] | None
    """Logarithm of their attention between tokens alone, 0 at keys that are not seen; None if the
    model cannot read tokens alone."""

    def of(self, heads: Sequence[int]) -> LayerRows:
        """Some of the heads, in this order."""
        numbers = list(heads)
        content = None if self.content is None else self.content[numbers]
        return LayerRows(self.layer, self.attention[numbers], content)


def stream_rows(
    model: Model,
    texts: Texts,
    on_layer: Callable[[LayerRows], None],
    *,
    layers: int | None = None,
) -> None:
    """Run the windows of texts, once as they are and once token by token, layer by layer.

    Args:
        model: of any engine.
        texts: windows and their rows.
        on_layer: called for each layer in order.
        layers: the first layers of the model that are read; all when None.
    """
    count = len(texts.windows)
    is_split = reads_tokens_alone(model)

    def take(attention: LayerAttention) -> None:
        pattern = next(attention.probabilities()).cpu()
        content = _content(texts, pattern[count:]) if is_split else None
        on_layer(LayerRows(attention.layer, texts.rows_of(pattern[:count]), content))

    windows = [*texts.windows, *texts.windows] if is_split else texts.windows
    engine: Any = model.engine
    change = overridden(engine.network, _second_half_alone) if is_split else nullcontext()
    with change:
        stream_attention(
            model, windows, whole_patterns, take, batch_tokens=ALL_TOGETHER, layers=layers
        )


def contents_of(
    model: Model, texts: Texts, layers: Collection[int]
) -> dict[int, Float[Tensor, "head row key"]]:
    """Values of `TOKENS_ALONE` in some layers."""
    contents: dict[int, Tensor] = {}

    def keep(rows: LayerRows) -> None:
        if rows.layer in layers and rows.content is not None:
            contents[rows.layer] = rows.content

    if layers:
        stream_rows(model, texts, keep, layers=max(layers) + 1)
    return contents


def reads_tokens_alone(model: Model) -> bool:
    """Test if a model can read tokens alone.

    It is causal, runs under the fused engine, and moves text between tokens by softmax attention
    only.
    """
    is_causal = not model.attention_kind.sees_future
    return model.engine.name == "fused" and is_causal and not model.others


def _content(
    texts: Texts, pattern: Float[Tensor, "window head query key"]
) -> Float[Tensor, "head row key"]:
    """Logarithms of the rows of patterns."""
    logs = texts.rows_of(pattern).log().clamp_min(LOWEST)
    return logs.masked_fill(~texts.seen, 0)


def _second_half_alone(call: AttentionCall) -> Output:
    """A layer's own attention, but the second half of the windows is read token by token."""
    output = call.output()
    half = len(output) // 2
    alone, _ = softmax_attend(
        call.query[half:],
        call.key[half:],
        call.value[half:],
        call.scale,
        call.score_terms._replace(bias=_bias_alone(call, half)),
    )
    output[half:] = alone.transpose(1, 2)
    return output


def _bias_alone(call: AttentionCall, half: int) -> Float[Tensor, "_ _ query key"]:
    """The layer's own bias with −∞ at all keys but the first ones and the query itself."""
    length = call.query.shape[2]
    position = torch.arange(length, device=call.query.device)
    is_early = position[None, :] < CONTEXT
    is_itself = position[:, None] == position[None, :]
    is_seen = call.visible & (is_early | is_itself)
    bias = call.score_terms.bias
    if bias is None:
        bias = torch.zeros(is_seen.shape, device=position.device)
    bias = bias.masked_fill(~is_seen, -torch.inf)
    return bias if len(bias) == 1 else bias[half:]


def raised_pairs(texts: Texts, rise: Float[Tensor, "row key"]) -> str:
    """The pairs of words with the largest rise of attention: `he → John, she → Mary`.

    A pair's rises are summed over its n cells and divided by √n, so that neither a frequent pair
    nor a single large rise comes first.

    Args:
        texts: windows and their rows.
        rise: change of attention on the rows that judge.
    """
    windows = texts.windows
    tokens = np.zeros((len(windows), texts.width), np.int64)
    strings: dict[int, str] = {}
    for number, window in enumerate(windows):
        tokens[number, : len(window)] = window.tokens
        strings.update(zip(window.tokens.tolist(), window.strings, strict=True))
    words = [token for token, string in strings.items() if is_word(string)]
    query = texts.query[texts.judged].numpy()
    tokens_of_row = tokens[texts.window[texts.judged].numpy()]
    query_token = np.take_along_axis(tokens_of_row, query[:, None], axis=1)
    # neither the query itself, nor the first tokens, which are read in context
    position = np.arange(texts.width)
    is_between = (position < query[:, None]) & (position >= CONTEXT)
    is_listed = is_between & np.isin(query_token, words) & np.isin(tokens_of_row, words)
    row, key = np.nonzero(is_listed)
    cells = np.stack([query_token[row, 0], tokens_of_row[row, key]])
    pairs, pair, count = np.unique(cells, axis=1, return_inverse=True, return_counts=True)
    total = np.bincount(pair.ravel(), rise.numpy()[row, key], minlength=len(count))
    order = np.argsort(-total / np.sqrt(count), kind="stable")
    names = []
    for first, second in pairs[:, order[:LISTED_PAIRS]].T.tolist():
        names.append(f"{one_line(strings[first].strip())} → {one_line(strings[second].strip())}")
    return ", ".join(names)
