"""The loss of the model as it is, and with other patterns in its heads' place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.measure.bootstrap import interval, resample
from headscope.models.batching import ALL_TOGETHER
from headscope.models.intervention import PatternReplaced
from headscope.models.loss import TextLoss, loss
from headscope.studies.explain.patterns import (
    CONTENT,
    MEAN,
    POSITION,
    RULE,
    UNIFORM,
    Patterns,
    smaller_rule,
)

ALL, UNTOUCHED = "all", "untouched"
COLUMNS = ["replaced", "how", "loss", "recovered", "ci_low", "ci_high"]
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
        its 95 % interval over windows.
    """
    parts = (windows[i : i + TOGETHER] for i in range(0, len(windows), TOGETHER))
    batches = [patterns.on(part) for part in parts]

    def run(heads: Heads | None = None, way: str = "") -> TextLoss:
        nats, tokens = [], []
        for batch in batches:
            replaced: PatternReplaced | None = batch.replacing(heads, way) if heads else None
            part = loss(patterns.model, batch.windows, replaced, batch_tokens=ALL_TOGETHER)
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
