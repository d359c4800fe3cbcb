"""Patterns by which heads attend instead, by rule, position alone, uniform or the mean, and the
loss of the model with them in its heads' place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.measure.bootstrap import interval, resample
from headscope.models.batching import ALL_TOGETHER
from headscope.models.engines.override import AttentionCall
from headscope.models.intervention import Pattern, PatternReplaced
from headscope.models.layout.modules import projections_by_layer
from headscope.models.load import Model
from headscope.models.loss import TextLoss, loss, state_distances
from headscope.studies.explain.catalogue import Catalogue, Packed, QueryTable, find_cells
from headscope.studies.explain.content_term import queries_and_keys
from headscope.studies.explain.feature import Feature
from headscope.studies.explain.surrogate import LayerSurrogates, Parts

UNIFORM, MEAN, POSITION = "uniform", "mean pattern", "position"
RULE, CONTENT = "rule", "rule + content"
LOSS, LAST_STATES = "loss", "last states"
"""Measures of what patterns change: of causal models, and of encoders."""
_SMALLER = f"{RULE} of "
MakePattern = Callable[[int, Tensor | None], Pattern]
"""From a layer and its input to the patterns of all its heads."""


def smaller_rule(size: int) -> str:
    """The way to run heads on rules of at most so many features.

    >>> smaller_rule(4)
    'rule of 4'
    """
    return f"{_SMALLER}{size}"


@dataclass(frozen=True, eq=False)
class Patterns:
    """The patterns of a model's rules on any windows.

    `on` gives those of a batch of windows.
    """

    catalogue: Catalogue
    rules: Mapping[int, LayerSurrogates]
    means: Mapping[int, Float[Tensor, "head query key"]]
    """Each head's mean pattern over windows, where it was taken."""
    model: Model

    @property
    def features(self) -> list[Feature]:
        """Every feature of some rule."""
        parts = (
            part
            for layer in self.rules.values()
            for head, by_place in zip(layer.heads, layer.places, strict=True)
            for part in (*head.parts(), *by_place)
        )
        return list(dict.fromkeys(feature for feature, *_ in parts))

    @property
    def sizes(self) -> list[int]:
        """Numbers of features for which there are smaller rules."""
        heads = (head for layer in self.rules.values() for head in layer.heads)
        return sorted({rule.features for head in heads for rule in head.smaller})

    def on(self, windows: Sequence[Window]) -> PatternsOn:
        """The patterns on these windows, whose features are found once for all ways."""
        return PatternsOn(self, windows)


class PatternsOn:
    """Some windows with the cells of all features that rules use, once they are asked for."""

    def __init__(self, patterns: Patterns, windows: Sequence[Window]) -> None:
        self.patterns, self.windows, self.rows = patterns, windows, QueryTable.of(windows)
        self.seen = _seen(windows, self.rows.width)

    @cached_property
    def packed(self) -> Packed:
        """The cells of all features that rules use."""
        return find_cells(self.patterns.catalogue, self.rows, only=self.patterns.features)

    def replacing(self, heads: Mapping[int, Sequence[int]], way: str) -> PatternReplaced:
        """The intervention by which heads attend so on these windows.

        Args:
            heads: by layer, which heads.
            way: one of the five ways, or a smaller rule.
        """
        make = self.make(way)

        def pattern(call: AttentionCall) -> Pattern:
            return make(call.layer, call.layer_input).to(call.query.device)

        return PatternReplaced(heads, pattern, within_visible=True)

    def make(self, way: str) -> MakePattern:
        """The function that gives each layer's patterns, by one of the five ways or a smaller rule.

        A padded position attends to anything.
        """
        size = int(way.removeprefix(_SMALLER)) if way.startswith(_SMALLER) else None

        def pattern(layer: int, stream: Tensor | None) -> Pattern:
            rules = self.patterns.rules[layer]
            if way == UNIFORM:
                return self._shared(self.seen.float())
            if way == MEAN:
                width = self.rows.width
                return self._shared(self.patterns.means[layer][:, :width, :width] * self.seen)
            if way == POSITION:
                return self._softmax(self._logits(rules.places))
            if way == CONTENT:
                return self._softmax(self._with_content(layer, rules, stream))
            return self._softmax(self._logits([head.parts(size) for head in rules.heads]))

        return pattern

    def _shared(self, weights: Tensor) -> Pattern:
        """Weights of keys as patterns; even ones where all of them are 0."""
        total = weights.sum(-1, keepdim=True)
        even = self.seen / self.seen.sum(-1, keepdim=True)
        return torch.where(total > 0, weights / total.clamp_min(TINY), even)

    def _with_content(self, layer: int, rules: LayerSurrogates, stream: Tensor | None) -> Tensor:
        engine: Any = self.patterns.model.engine
        logits = self._logits(
            [tuple((t.feature, t.gate, t.with_content) for t in head.terms) for head in rules.heads]
        )
        if stream is not None and rules.content is not None:
            module = projections_by_layer(engine.network)[layer]
            query, key = queries_and_keys(module, engine.dimensions, stream)
            logits += rules.content.logits(query.cpu(), key.cpu()).transpose(0, 1)
        return logits

    def _logits(self, rules: Sequence[Parts]) -> Float[Tensor, "window head query key"]:
        rows, width, gate = self.rows, self.rows.width, self.rows.gate.numpy()
        number = {feature: i for i, feature in enumerate(self.packed.features)}
        logits = torch.zeros(len(self.windows), len(rules), width, width)
        for head, parts in enumerate(rules):
            flat = torch.zeros(len(rows) * width)
            for feature, query_gate, weight in parts:
                cell, value = self.packed.cells_of(number[feature])
                if query_gate >= 0:
                    passes = gate[cell // width] == query_gate
                    cell, value = cell[passes], value[passes]
                flat[torch.from_numpy(cell)] += weight * torch.from_numpy(value)
            logits[rows.window, head, rows.query] = flat.view(-1, width)
        return logits

    def _softmax(self, logits: Float[Tensor, "window head query key"]) -> Pattern:
        return logits.masked_fill(~self.seen, -torch.inf).softmax(-1)


def _seen(windows: Sequence[Window], width: int) -> Bool[Tensor, "window 1 query key"]:
    """Mask of the keys that each query sees, of padding those of a last token."""
    position = np.arange(width)
    ends = [window.attention_kind.row_end(position, len(window)) for window in windows]
    return torch.arange(width) < torch.from_numpy(np.stack(ends))[:, None, :, None]


ALL, UNTOUCHED = "all", "untouched"
COLUMNS = ["replaced", "how", "loss", "recovered", "ci_low", "ci_high"]
TINY = 1e-12
TOGETHER = 8
"""Windows that are run together."""

Heads = dict[int, list[int]]


def run_losses(
    patterns: Patterns,
    windows: Sequence[Window],
    groups: Sequence[tuple[str, Heads, Sequence[str]]],
    advance: Callable[[], None],
) -> pd.DataFrame:
    """The loss with each group of heads replaced in each way.

    Args:
        patterns: of the model's rules.
        windows: the text.
        groups: the name of each group, its heads by layer, and the ways to replace them, the
            first of which must be `uniform`.
        advance: called after each pass.

    Returns:
        First the untouched model, then a row per group × way: the `loss` in nats per token, and
        the share of what uniform patterns cost that is `recovered` (0 uniform, 1 untouched), with
        its 95 % interval over windows. An encoder, which predicts no next token, is asked for
        the distance of its last states from the untouched model's instead; see `state_distances`.
    """
    model = patterns.model
    score = loss if model.attention_kind.predicts_next else state_distances
    parts = (windows[i : i + TOGETHER] for i in range(0, len(windows), TOGETHER))
    batches = [patterns.on(part) for part in parts]

    def run(heads: Heads | None = None, way: str = "") -> TextLoss:
        nats, tokens = [], []
        for batch in batches:
            replaced: PatternReplaced | None = batch.replacing(heads, way) if heads else None
            part = score(model, batch.windows, replaced, batch_tokens=ALL_TOGETHER)
            nats.append(part.nats)
            tokens.append(part.tokens)
        advance()
        return TextLoss(np.concatenate(nats), np.concatenate(tokens))

    clean = run()
    rows = [("", UNTOUCHED, clean.mean, np.nan, np.nan, np.nan)]
    for name, heads, ways in groups:
        losses = {way: run(heads, way) for way in ways}
        rows += [
            (name, way, replaced.mean, *_recovered(replaced, losses[ways[0]], clean))
            for way, replaced in losses.items()
        ]
    return pd.DataFrame(rows, columns=COLUMNS)


def groups_of(
    patterns: Patterns, grouping: str, types: Mapping[str, Heads]
) -> list[tuple[str, Heads, Sequence[str]]]:
    """All heads together in every way; then, if asked for, by type, by layer or head by head.

    Smaller rules of each size are among the ways where they are asked for.

    Args:
        patterns: of the model's rules.
        grouping: what is asked for.
        types: the heads of each type by layer, where a run says so.
    """
    layers = {layer: list(range(len(rules.heads))) for layer, rules in patterns.rules.items()}
    has_content = any(rules.content is not None for rules in patterns.rules.values())
    rules = [RULE, CONTENT] if has_content else [RULE]
    sizes = [smaller_rule(size) for size in patterns.sizes] if grouping == "size" else []
    groups: dict[str, Heads] = dict(types) if grouping == "type" else {}
    if grouping in ("layer", "head"):
        groups |= {f"L{layer}": {layer: heads} for layer, heads in layers.items()}
    if grouping == "head":
        groups |= {
            head_name(layer, head): {layer: [head]}
            for layer, heads in layers.items()
            for head in heads
        }
    together = [UNIFORM, MEAN, POSITION, *sizes, *rules]
    return [
        (ALL, layers, together),
        *((name, heads, [UNIFORM, rules[-1]]) for name, heads in groups.items()),
    ]


def _recovered(
    replaced: TextLoss, uniform: TextLoss, clean: TextLoss
) -> tuple[float, float, float]:
    """(uniform − this) / (uniform − untouched), with its interval over windows."""
    gained, attainable = uniform.nats - replaced.nats, uniform.nats - clean.nats
    if attainable.sum() <= 0:  # uniform patterns cost nothing: there is nothing to recover
        return np.nan, np.nan, np.nan
    draws = resample(len(attainable), np.random.default_rng(0))
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = interval(gained, attainable, draws)
    return float(gained.sum() / attainable.sum()), float(low), float(high)
