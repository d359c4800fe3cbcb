"""Attention by bigrams: what a head attends to if each token is read with the one before it only.

A model runs on a text so that each token sees itself, the token before it, and the first `FIRST`
tokens. The token before it sees only itself and the first ones. A head's logits then depend on two
bigrams and their distance, as the QK circuit's depend on two tokens (Elhage et al. 2021). In the
first layer they are the head's own logits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.models.engines.attention import AttentionCall, Output, overridden, softmax_attend
from headscope.models.model import Model
from headscope.models.stream import ALL_TOGETHER, LayerAttention, stream_attention, whole_patterns
from headscope.printing import one_line
from headscope.studies.explain.catalogue import Texts
from headscope.studies.explain.features import is_word

FIRST = 7
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
    """Logarithm of their attention between bigrams, 0 at keys that are not seen; None if the model
    cannot read bigrams."""

    def of(self, heads: Sequence[int]) -> LayerRows:
        """Some of the heads, in this order."""
        numbers = list(heads)
        content = None if self.content is None else self.content[numbers]
        return LayerRows(self.layer, self.attention[numbers], content)


@dataclass(frozen=True)
class _Thirds:
    """Thirds of a batch that holds the same windows three times."""

    text: slice
    """Windows that are read as they are."""
    tokens: slice
    """Windows whose tokens see themselves and the first ones."""
    bigrams: slice
    """Windows whose tokens also see the token before, as it is among `tokens`."""

    @classmethod
    def of(cls, windows: int) -> _Thirds:
        """Thirds of a batch of so many windows, which are the same in each."""
        third = windows // 3
        return cls(slice(0, third), slice(third, 2 * third), slice(2 * third, windows))


def stream_rows(
    model: Model,
    texts: Texts,
    on_layer: Callable[[LayerRows], None],
    *,
    layers: int | None = None,
) -> None:
    """Run the windows of texts as they are and bigram by bigram, layer by layer.

    Args:
        model: of any engine.
        texts: windows and their rows.
        on_layer: called for each layer in order.
        layers: the first layers of the model that are read; all when None.
    """
    # bigrams are read in two further passes, of their parts
    has_bigrams = reads_bigrams(model)
    times = 3 if has_bigrams else 1

    # the parts of a batch are the text itself, single tokens and pairs of tokens
    def take(attention: LayerAttention) -> None:
        pattern = next(attention.probabilities()).cpu()
        content = None
        if has_bigrams:
            thirds = _Thirds.of(len(pattern))
            content = _logarithms(texts, pattern[thirds.bigrams])
        rows = texts.rows_of(pattern[: len(texts.windows)])
        on_layer(LayerRows(attention.layer, rows, content))

    engine: Any = model.engine
    change = overridden(engine.network, _attend_by_thirds) if has_bigrams else nullcontext()
    with change:
        stream_attention(
            model,
            texts.windows * times,
            whole_patterns,
            take,
            batch_tokens=ALL_TOGETHER,
            layers=layers,
        )


def contents_of(
    model: Model, texts: Texts, layers: Collection[int]
) -> dict[int, Float[Tensor, "head row key"]]:
    """Values of `BIGRAMS` in some layers."""
    contents: dict[int, Tensor] = {}

    def keep(rows: LayerRows) -> None:
        if rows.layer in layers and rows.content is not None:
            contents[rows.layer] = rows.content

    if layers:
        stream_rows(model, texts, keep, layers=max(layers) + 1)
    return contents


def reads_bigrams(model: Model) -> bool:
    """Test if a model can read bigrams.

    It is causal, runs under the fused engine, and moves text between tokens by softmax attention
    only.
    """
    is_causal = not model.attention_kind.sees_future
    return model.engine.name == "fused" and is_causal and not model.others


def _logarithms(
    texts: Texts, pattern: Float[Tensor, "window head query key"]
) -> Float[Tensor, "head row key"]:
    """Logarithms of the rows of patterns."""
    logs = texts.rows_of(pattern).log().clamp_min(LOWEST)
    return logs.masked_fill(~texts.seen, 0)


def _attend_by_thirds(call: AttentionCall) -> Output:
    """A layer's own attention on the text, and less context in the other parts of the batch."""
    output = call.output()
    thirds = _Thirds.of(len(output))
    output[thirds.tokens] = _attend_to_few(call, thirds.tokens, thirds.tokens, before=0)
    output[thirds.bigrams] = _attend_to_few(call, thirds.bigrams, thirds.tokens, before=1)
    return output


def _attend_to_few(call: AttentionCall, part: slice, others: slice, *, before: int) -> Output:
    """Attention of the tokens of a part to themselves and to a few earlier tokens.

    Args:
        call: of the layer.
        part: windows of the queries.
        others: windows from which the earlier tokens' keys and values come.
        before: number of tokens just before the query that it sees, beside the first ones.
    """
    # each token sees itself, the first tokens, and a few before it
    position = torch.arange(call.query.shape[2], device=call.query.device)
    distance = position[:, None] - position[None, :]
    is_near = (distance > 0) & (distance <= before)
    is_first = (distance > 0) & (position < FIRST)
    is_seen = torch.cat([is_near | is_first, distance == 0], 1)
    terms = call.score_terms
    bias = terms.bias
    if bias is None:
        bias = torch.zeros(1, 1, *distance.shape, device=position.device)
    if len(bias) > 1:
        bias = bias[part]
    bias_of_both = torch.cat([bias, bias], -1).masked_fill(~is_seen, -torch.inf)
    # keys of other tokens in their own text, and each part's own key
    output, _ = softmax_attend(
        call.query[part],
        torch.cat([call.key[others], call.key[part]], 2),
        torch.cat([call.value[others], call.value[part]], 2),
        call.scale,
        terms._replace(bias=bias_of_both, sees_future=True),
    )
    return output.transpose(1, 2)


@dataclass(frozen=True, eq=False)
class _TokenTable:
    """The tokens of windows, padded to the same width."""

    tokens: Int[ndarray, "window position"]
    strings: Mapping[int, str]
    """The text of each token."""

    @classmethod
    def of(cls, texts: Texts) -> _TokenTable:
        """The tokens of the windows of texts."""
        tokens = np.zeros((len(texts.windows), texts.width), np.int64)
        strings: dict[int, str] = {}
        for number, window in enumerate(texts.windows):
            tokens[number, : len(window)] = window.tokens
            strings.update(zip(window.tokens.tolist(), window.strings, strict=True))
        return cls(tokens, strings)

    @property
    def words(self) -> list[int]:
        """Tokens that are words."""
        return [token for token, string in self.strings.items() if is_word(string)]

    def name(self, token: int) -> str:
        """The text of a token in one line, without spaces at its ends."""
        return one_line(self.strings[token].strip())


def raised_pairs(texts: Texts, rise: Float[Tensor, "row key"]) -> str:
    """The pairs of words with the largest rise of attention: `he → John, she → Mary`.

    A pair's rises are summed over its n cells and divided by √n, so that neither a frequent pair
    nor a single large rise comes first.

    Args:
        texts: windows and their rows.
        rise: change of attention on the rows that judge.
    """
    # words at the rows that judge
    table = _TokenTable.of(texts)
    query = texts.query[texts.judged].numpy()
    window = texts.window[texts.judged].numpy()
    query_token = table.tokens[window, query]
    key_tokens = table.tokens[window]
    # neither the query itself, nor the first tokens, which are read in context
    position = np.arange(texts.width)
    is_between = (position < query[:, None]) & (position >= FIRST)
    is_query_word = np.isin(query_token, table.words)
    is_key_word = np.isin(key_tokens, table.words)
    row, key = np.nonzero(is_between & is_query_word[:, None] & is_key_word)
    cells = pd.DataFrame(
        {
            "query": query_token[row],
            "key": key_tokens[row, key],
            "rise": rise.numpy()[row, key],
        }
    )
    # a pair that comes often weighs more than by its mean
    rises = cells.groupby(["query", "key"])["rise"].agg(["sum", "size"])
    scores = rises["sum"] / np.sqrt(rises["size"])
    largest = scores.sort_values(ascending=False, kind="stable").index[:LISTED_PAIRS]
    return ", ".join(f"{table.name(first)} → {table.name(second)}" for first, second in largest)
