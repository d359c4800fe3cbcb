"""The loss of the model as it is, and with patterns in its heads' place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.measure.batches import Batch
from headscope.measure.bootstrap import interval, resample
from headscope.measure.text_loss import TextLoss, text_loss
from headscope.studies.explain.patterns import (
    CONTENT,
    MEAN,
    PLACE,
    RULE,
    UNIFORM,
    Patterns,
    PatternsOn,
    smaller_rule,
)
from headscope.studies.explain.running import running

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
    parts = [list(windows[i : i + TOGETHER]) for i in range(0, len(windows), TOGETHER)]
    batches = [patterns.on(part) for part in parts]
    base = _loss(patterns.network, batches)
    advance()
    rows: list[tuple[Any, ...]] = [("", UNTOUCHED, base.mean, np.nan, np.nan, np.nan)]
    for name, heads, ways in groups:
        uniform = None
        for how in ways:
            loss = _loss(patterns.network, batches, heads, how)
            uniform = loss if uniform is None else uniform
            rows.append((name, how, loss.mean, *_recovered(loss, uniform, base)))
            advance()
    return pd.DataFrame(rows, columns=COLUMNS)


def groups_of(
    patterns: Patterns, each: str, types: Mapping[str, Heads]
) -> list[tuple[str, Heads, Sequence[str]]]:
    """All heads together in every way; then, if asked for, by type, by layer or head by head.

    Smaller rules of each size are among the ways where they are asked for.

    Args:
        patterns: of the model's rules.
        each: what is asked for.
        types: the heads of each type by layer, where a run says so.
    """
    layers = {layer: list(range(len(own.heads))) for layer, own in patterns.rules.items()}
    own = [RULE, CONTENT] if _has_content(patterns) else [RULE]
    sizes = [smaller_rule(size) for size in patterns.sizes] if each == "size" else []
    together = [UNIFORM, MEAN, PLACE, *sizes, *own]
    found: list[tuple[str, Heads, Sequence[str]]] = [(ALL, layers, together)]
    few = [UNIFORM, own[-1]]
    if each == "type":
        found += [(name, heads, few) for name, heads in types.items()]
    if each in ("layer", "head"):
        found += [(f"L{layer}", {layer: heads}, few) for layer, heads in layers.items()]
    if each == "head":
        found += [
            (head_name(layer, head), {layer: [head]}, few)
            for layer, heads in layers.items()
            for head in heads
        ]
    return found


def _has_content(patterns: Patterns) -> bool:
    return any(own.content is not None for own in patterns.rules.values())


def _loss(
    network: Any, batches: Sequence[PatternsOn], heads: Heads | None = None, how: str = ""
) -> TextLoss:
    found = []
    for own in batches:
        batch = Batch(list(own.windows), np.zeros(len(own.windows), np.int64), {})
        if heads is None:
            found.append(text_loss(network, [batch]))
            continue
        with running(network, heads, own.make(how)):
            found.append(text_loss(network, [batch]))
    nats = np.concatenate([each.nats for each in found])
    return TextLoss(nats, np.concatenate([each.tokens for each in found]))


def _recovered(loss: TextLoss, uniform: TextLoss, base: TextLoss) -> Iterator[float]:
    """(uniform − this) / (uniform − untouched), with its interval over windows."""
    gained, room = uniform.nats - loss.nats, uniform.nats - base.nats
    if room.sum() <= 0:  # uniform patterns cost nothing: there is nothing to recover
        yield from (np.nan, np.nan, np.nan)
        return
    yield float(gained.sum() / room.sum())
    draws = resample(len(room), np.random.default_rng(0))
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = interval(gained, room, draws)
    yield float(low)
    yield float(high)
