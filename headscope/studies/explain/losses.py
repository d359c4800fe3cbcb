"""Loss of a model whose heads all attend uniformly, by sinks and distance, or by their rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.bootstrap import interval, resample
from headscope.models.batching import ALL_TOGETHER
from headscope.models.engines.override import AttentionCall
from headscope.models.intervention import Pattern, PatternReplaced
from headscope.models.load import Model
from headscope.models.loss import TextLoss, loss
from headscope.studies.explain.catalogue import Catalogue, QueryTable, find_cells
from headscope.studies.explain.judge import HeadRule, Parts, Share

UNTOUCHED, UNIFORM, POSITION, RULES = "untouched", "uniform", "position", "rules"
TOGETHER = 8
"""Windows that run together."""


class RulePatterns:
    """Patterns that rules prescribe on some windows."""

    def __init__(
        self,
        catalogue: Catalogue,
        rules: Mapping[int, Sequence[HeadRule]],
        windows: Sequence[Window],
    ) -> None:
        self.rules, self.rows = rules, QueryTable.of(windows)
        self.seen = _seen(windows, self.rows.width)
        self.packed = find_cells(catalogue, self.rows)
        self.number = {feature: i for i, feature in enumerate(self.packed.features)}

    def replacing(self, way: str) -> PatternReplaced:
        """The intervention by which all heads attend in one of the three ways."""

        def pattern(call: AttentionCall) -> Pattern:
            return self.pattern(call.layer, way).to(call.query.device)

        return PatternReplaced(frozenset(self.rules), pattern, within_visible=True)

    def pattern(self, layer: int, way: str) -> Pattern:
        """Patterns of a layer's heads; a padded position attends to anything."""
        if way == UNIFORM:
            return self.seen / self.seen.sum(-1, keepdim=True)
        rules = self.rules[layer]
        logits = self._logits(
            [head.position_parts if way == POSITION else head.parts for head in rules]
        )
        return logits.masked_fill(~self.seen, -torch.inf).softmax(-1)

    def _logits(self, rules: Sequence[Parts]) -> Float[Tensor, "window head query key"]:
        rows, width, gate = self.rows, self.rows.width, self.rows.gate.numpy()
        logits = torch.zeros(len(rows.windows), len(rules), width, width)
        for head, parts in enumerate(rules):
            flat = torch.zeros(len(rows) * width)
            for feature, query_gate, weight in parts:
                if feature not in self.number:  # it holds nowhere in these windows
                    continue
                cell, value = self.packed.cells_of(self.number[feature])
                if query_gate >= 0:
                    passes = gate[cell // width] == query_gate
                    cell, value = cell[passes], value[passes]
                flat[torch.from_numpy(cell)] += weight * torch.from_numpy(value)
            logits[rows.window, head, rows.query] = flat.view(-1, width)
        return logits


def _seen(windows: Sequence[Window], width: int) -> Bool[Tensor, "window 1 query key"]:
    """Mask of the keys that each query sees; a padded one sees the keys of the last token."""
    position = np.arange(width)
    ends = [window.attention_kind.row_end(position, len(window)) for window in windows]
    return torch.arange(width) < torch.from_numpy(np.stack(ends))[:, None, :, None]


def run_losses(
    model: Model,
    catalogue: Catalogue,
    rules: Mapping[int, Sequence[HeadRule]],
    windows: Sequence[Window],
    advance: Callable[[], None],
) -> dict[str, TextLoss]:
    """Measure the loss on windows, of the untouched model and with all heads in each of three ways.

    Args:
        model: a causal model that runs under the fused engine.
        catalogue: source of the rules' features.
        rules: rules of all heads, by layer.
        windows: text.
        advance: called after each of the four passes.
    """
    parts = [windows[i : i + TOGETHER] for i in range(0, len(windows), TOGETHER)]
    batches = [(part, RulePatterns(catalogue, rules, part)) for part in parts]
    losses = {}
    for way in (UNTOUCHED, UNIFORM, POSITION, RULES):
        text_losses = []
        for part, patterns in batches:
            change = None if way == UNTOUCHED else patterns.replacing(way)
            text_losses.append(loss(model, part, change, batch_tokens=ALL_TOGETHER))
        nats = np.concatenate([part.nats for part in text_losses])
        losses[way] = TextLoss(nats, np.concatenate([part.tokens for part in text_losses]))
        advance()
    return losses


def recovered(losses: Mapping[str, TextLoss], way: str) -> Share:
    """(uniform − way) / (uniform − untouched), with its 95 % interval over windows.

    NaN if uniform attention costs nothing.
    """
    gained = losses[UNIFORM].nats - losses[way].nats
    attainable = losses[UNIFORM].nats - losses[UNTOUCHED].nats
    if attainable.sum() <= 0:
        return Share(np.nan, np.nan, np.nan)
    draws = resample(len(attainable), np.random.default_rng(0))
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = interval(gained, attainable, draws)
    return Share(float(gained.sum() / attainable.sum()), float(low), float(high))
