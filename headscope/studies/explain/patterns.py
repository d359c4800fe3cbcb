"""Patterns to run in the heads' place: by rule, by place alone, even, or the mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.engines.modules import by_number
from headscope.models.layout import Layout
from headscope.studies.explain.catalogue import Catalogue, Packed, Rows, pack
from headscope.studies.explain.feature import Feature
from headscope.studies.explain.reading import queries_and_keys
from headscope.studies.explain.rules import LayerRules
from headscope.studies.explain.running import MakePattern, Pattern

UNIFORM, MEAN, PLACE, RULE, CONTENT = (
    "uniform",
    "mean pattern",
    "position",
    "rule",
    "rule + content",
)
_SMALLER = f"{RULE} of "
_Means = Mapping[int, Float[Tensor, "head query key"]]


def smaller_rule(size: int) -> str:
    """The way to run heads on rules of at most so many features.

    >>> smaller_rule(4)
    'rule of 4'
    """
    return f"{_SMALLER}{size}"


@dataclass(frozen=True, eq=False)
class Patterns:
    """The patterns of a model's rules on any windows.

    `on` says what a batch of windows is to be run with; see `running`.
    """

    catalogue: Catalogue
    rules: Mapping[int, LayerRules]
    means: _Means
    """Each head's mean pattern over windows, where it was taken."""
    network: Any
    stated: Layout

    @property
    def features(self) -> list[Feature]:
        """Every feature of some rule."""
        used = dict.fromkeys(
            feature
            for layer in self.rules.values()
            for head, place in zip(layer.heads, layer.places, strict=True)
            for feature in [each.feature for each in head.terms] + [each for each, _ in place]
        )
        return list(used)

    @property
    def sizes(self) -> list[int]:
        """Of how many features there are smaller rules."""
        heads = (head for layer in self.rules.values() for head in layer.heads)
        return sorted({each.features for head in heads for each in head.smaller})

    def on(self, windows: Sequence[Window]) -> PatternsOn:
        """The patterns on these windows, whose features are found once for all ways."""
        return PatternsOn(self, windows)


class PatternsOn:
    """Some windows with the cells of all features that rules use, once they are asked for."""

    def __init__(self, patterns: Patterns, windows: Sequence[Window]) -> None:
        self.patterns, self.windows = patterns, windows
        self.rules, self.means = patterns.rules, patterns.means
        self.rows = Rows.of(windows)
        width = self.rows.width
        self.seen = torch.ones(width, width, dtype=torch.bool).tril()

    @cached_property
    def packed(self) -> Packed:
        """The cells of all features that rules use."""
        return pack(self.patterns.catalogue, self.rows, only=self.patterns.features)

    @cached_property
    def number(self) -> dict[Feature, int]:
        """Where each feature is among the packed."""
        return {feature: i for i, feature in enumerate(self.packed.features)}

    def make(self, how: str) -> MakePattern:
        """What gives each layer's patterns, one of the five ways or a smaller rule.

        Patterns come on the device of the layer's input; a padded position attends as it likes.
        """
        ways: dict[str, Callable[[int, Tensor], Pattern]] = {
            UNIFORM: lambda layer, _: self._even(len(self.rules[layer].heads)),
            MEAN: lambda layer, _: self._mean(self.means[layer]),
            PLACE: lambda layer, _: self._by_place(self.rules[layer]),
            RULE: lambda layer, _: self._by_rule(self.rules[layer]),
            CONTENT: lambda layer, stream: self._by_rule(self.rules[layer], (layer, stream)),
        }
        if how.startswith(_SMALLER):
            size = int(how.removeprefix(_SMALLER))
            ways[how] = lambda layer, _: self._by_rule(self.rules[layer], size=size)
        chosen = ways[how]
        return lambda layer, stream: chosen(layer, stream).to(stream.device)

    def _even(self, heads: int) -> Pattern:
        seen = self.seen / self.seen.sum(-1, keepdim=True)
        return seen.expand(len(self.windows), heads, -1, -1)

    def _mean(self, means: Float[Tensor, "head place place"]) -> Pattern:
        width = self.rows.width
        own = means[:, :width, :width]
        return (own / own.sum(-1, keepdim=True)).expand(len(self.windows), -1, -1, -1)

    def _by_place(self, rules: LayerRules) -> Pattern:
        parts = [[(f, -1, w) for f, w in own] for own in rules.places]
        return self._pattern(torch.stack([self._logits(each) for each in parts], 1))

    def _by_rule(
        self,
        rules: LayerRules,
        read: tuple[int, Tensor] | None = None,
        *,
        size: int | None = None,
    ) -> Pattern:
        logits = []
        for head in rules.heads:
            parts = head.parts(size)
            if read is not None:
                parts = tuple((e.feature, e.gate, e.with_content) for e in head.terms)
            logits.append(self._logits(parts))
        found = torch.stack(logits, 1)
        if read is not None and rules.content is not None:
            layer, stream = read
            module = by_number(self.patterns.network)[layer]
            vectors = queries_and_keys(module, self.patterns.stated, stream)
            found += rules.content.logits(*(each.cpu() for each in vectors)).transpose(0, 1)
        return self._pattern(found)

    def _logits(
        self, parts: Sequence[tuple[Feature, int, float]]
    ) -> Float[Tensor, "window query key"]:
        rows, width = self.rows, self.rows.width
        flat = torch.zeros(len(rows) * width)
        gate = rows.gate.numpy()
        for feature, asked, weight in parts:
            cell, value = self.packed.own(self.number[feature])
            if asked >= 0:
                kept = gate[cell // width] == asked
                cell, value = cell[kept], value[kept]
            flat[torch.from_numpy(cell)] += weight * torch.from_numpy(value)
        found = torch.zeros(len(self.windows), width, width)
        found[rows.window, rows.query] = flat.view(-1, width)
        return found

    def _pattern(self, logits: Float[Tensor, "window head query key"]) -> Pattern:
        return logits.masked_fill(~self.seen, -torch.inf).softmax(-1)
