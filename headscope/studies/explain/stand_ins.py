"""Patterns that replace those of heads: of their feature models, and of simple baselines.

Each is computed from tokens, annotation and what was fitted on other documents. None reads the
attention of the model on the windows that are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.attention_kind import AttentionKind
from headscope.causal.intervention import HeadPatterns, Replacement, softmax_over_visible
from headscope.corpus.window import Window
from headscope.models.engines.attention import AttentionCall
from headscope.models.model import Model
from headscope.models.stream import (
    LayerAttention,
    batch_tokens_on,
    stream_attention,
    whole_patterns,
)
from headscope.relations.relation import Relation
from headscope.studies.explain.catalogue import Texts
from headscope.studies.explain.content import contents_of
from headscope.studies.explain.feature import TokenFacts
from headscope.studies.explain.feature_model import FeatureModel, term_logits

HeadLogits = Float[Tensor, "window _ query key"]
"""Logits of all heads of a layer, or one table for all of them; of all windows if that is 1."""
LogitsByLayer = Mapping[int, HeadLogits]
FEATURE_MODEL, OTHER_HEAD = "feature model", "other head"
SINK_AND_DISTANCE, DISTANCE = "sink and distance", "distance"
FIRST_TOKEN, UNIFORM = "first token", "uniform"
_ONLY_KEY = 1e4
"""Logit of the only key that has attention."""
_TINY = 1e-9


def replacement(heads: Mapping[int, Sequence[int]], logits: LogitsByLayer) -> Replacement:
    """Heads by layer that attend by a softmax of these logits over the keys that they see."""

    def pattern(call: AttentionCall) -> HeadPatterns:
        of_layer = logits[call.layer]
        if of_layer.shape[1] > 1:
            of_layer = of_layer[:, list(heads[call.layer])]
        visible = call.visible[:, :1]  # all heads of a layer see the same keys
        return softmax_over_visible(of_layer.to(visible.device), visible)

    return Replacement(heads, pattern)


@dataclass(frozen=True, eq=False)
class FeatureLogits:
    """Logits of feature models on any windows."""

    models: Sequence[FeatureModel]
    """One per head of the model, layer by layer and head by head."""
    lexicon: TokenFacts
    """Facts of the windows that were fitted."""
    relations: Sequence[Relation]
    model: Model
    """Model that is run for the heads' values of `BIGRAMS`."""

    def on(self, windows: Sequence[Window]) -> LogitsByLayer:
        """The logits at all cells of windows that run together, by layer."""
        texts = Texts.of((windows, [], []), self.lexicon, self.relations, step=1)
        layers = {model.layer for model in self.models if model.has_content}
        contents = contents_of(self.model, texts, layers)
        heads_of_layer: dict[int, list[Tensor]] = {}
        for model in self.models:
            content = contents[model.layer][model.head] if model.has_content else None
            logits = torch.zeros(len(windows), texts.width, texts.width)
            logits[texts.window, texts.query] = term_logits(model, texts, content).logits.sum(0)
            heads = heads_of_layer.setdefault(model.layer, [])
            heads.append(logits)
        return {layer: torch.stack(heads, 1) for layer, heads in heads_of_layer.items()}


@dataclass(frozen=True, eq=False)
class StandIns:
    """All replacements of patterns."""

    features: FeatureLogits
    means: Mapping[int, MeanByDistance]
    """By layer."""
    attention_kind: AttentionKind

    def on(self, windows: Sequence[Window]) -> dict[str, LogitsByLayer]:
        """The logits of every replacement on windows that run together, by its name."""
        width = max(map(len, windows))
        of_models = self.features.on(windows)
        layers = list(self.means)
        kind = self.attention_kind
        by_sink = {layer: m.logits_with_sink(width, kind) for layer, m in self.means.items()}
        by_distance = {layer: m.logits(width) for layer, m in self.means.items()}
        return {
            FEATURE_MODEL: of_models,
            OTHER_HEAD: of_next_head(of_models),
            SINK_AND_DISTANCE: by_sink,
            DISTANCE: by_distance,
            FIRST_TOKEN: first_token_logits(layers, width),
            UNIFORM: uniform_logits(layers, width),
        }


def of_next_head(logits: LogitsByLayer) -> LogitsByLayer:
    """The logits of the next head of each layer; of the first head for the last one."""
    return {layer: heads.roll(-1, dims=1) for layer, heads in logits.items()}


def uniform_logits(layers: Sequence[int], width: int) -> LogitsByLayer:
    """Equal logits of all keys."""
    return dict.fromkeys(layers, torch.zeros(1, 1, width, width))


def first_token_logits(layers: Sequence[int], width: int) -> LogitsByLayer:
    """All attention on the first token."""
    logits = torch.zeros(1, 1, width, width)
    logits[..., 0] = _ONLY_KEY
    return dict.fromkeys(layers, logits)


@dataclass(frozen=True, eq=False)
class MeanByDistance:
    """Mean attention of each head of a layer by distance, on the windows that fit.

    The entry at `longest` + d is the mean over all pairs of a query and a key d tokens before it;
    of encoders d may be below 0.
    """

    longest: int
    """Largest distance."""
    all_keys: Float[Tensor, "head distance"]
    """Mean attention."""
    later_keys: Float[Tensor, "head distance"]
    """Mean attention on keys other than the first token."""
    first_token: Float[Tensor, " head"]
    """Mean share of the first token over the queries after it."""

    def logits(self, width: int) -> HeadLogits:
        """Logarithms of the mean pattern by distance."""
        return self._at_cells(self.all_keys, width).clamp_min(_TINY).log()[None]

    def logits_with_sink(self, width: int, attention_kind: AttentionKind) -> HeadLogits:
        """Logarithms of a pattern in which the first token has its mean share.

        Other keys share the rest by their distance.
        """
        hidden = torch.from_numpy(attention_kind.hidden(width))
        pattern = self._at_cells(self.later_keys, width).masked_fill(hidden, 0)
        pattern[..., 0] = 0
        total = pattern.sum(-1, keepdim=True).clamp_min(_TINY)
        later_share = 1 - self.first_token[:, None, None]
        pattern = pattern * later_share / total
        pattern[..., 0] = self.first_token[:, None]
        return pattern.clamp_min(_TINY).log()[None]

    def _at_cells(
        self, by_distance: Float[Tensor, "head distance"], width: int
    ) -> Float[Tensor, "head query key"]:
        position = torch.arange(width)
        distance = position[:, None] - position[None, :]
        offset = (distance + self.longest).clamp(0, 2 * self.longest)
        return by_distance[:, offset]


def means_by_distance(model: Model, windows: Sequence[Window]) -> dict[int, MeanByDistance]:
    """Mean attention by distance of every layer on windows."""
    longest = max(len(window) for window in windows) - 1
    sums: dict[int, _DistanceSums] = {}

    def add(attention: LayerAttention) -> None:
        of_layer = sums.setdefault(attention.layer, _DistanceSums(longest, model.heads))
        patterns = next(attention.probabilities()).float().cpu()
        for pattern, window in zip(patterns, attention.windows, strict=True):
            of_layer.add(pattern, window)

    batch_tokens = batch_tokens_on(model.device)
    stream_attention(model, windows, whole_patterns, add, batch_tokens=batch_tokens)
    return {layer: of_layer.means() for layer, of_layer in sums.items()}


class _DistanceSums:
    """Sums of a layer's attention by distance."""

    def __init__(self, longest: int, heads: int) -> None:
        self.longest = longest
        distances = 2 * longest + 1
        self.all_keys = torch.zeros(distances, heads)
        self.later_keys = torch.zeros(distances, heads)
        self.count = torch.zeros(distances)
        self.later_count = torch.zeros(distances)
        self.first_token = torch.zeros(heads)
        self.queries = 0

    def add(self, pattern: Float[Tensor, "head query key"], window: Window) -> None:
        """Add the visible cells of a window; `pattern` may be padded."""
        hidden = torch.from_numpy(window.attention_kind.hidden(len(window)))
        query, key = torch.nonzero(~hidden, as_tuple=True)
        attention = pattern[:, query, key].T
        offset = query - key + self.longest
        is_later = key > 0
        self.all_keys.index_add_(0, offset, attention)
        self.later_keys.index_add_(0, offset[is_later], attention[is_later])
        self.count += torch.bincount(offset, minlength=len(self.count))
        self.later_count += torch.bincount(offset[is_later], minlength=len(self.count))
        self.first_token += pattern[:, 1 : len(window), 0].sum(1)
        self.queries += len(window) - 1

    def means(self) -> MeanByDistance:
        """Sums divided by the number of pairs, or of queries."""
        pairs = self.count.clamp_min(1)[:, None]
        later_pairs = self.later_count.clamp_min(1)[:, None]
        return MeanByDistance(
            longest=self.longest,
            all_keys=(self.all_keys / pairs).T,
            later_keys=(self.later_keys / later_pairs).T,
            first_token=self.first_token / self.queries,
        )
