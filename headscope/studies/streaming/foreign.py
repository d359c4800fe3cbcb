"""Whether a head reads what is far: its far mass beside that on another document's text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import stats
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.bootstrap import interval, resample
from headscope.measure.text_loss import Advance
from headscope.models.engines.engine import Rows, Tile
from headscope.models.load import Model

NEAR = 64
"""Tokens before a query that are its own in both texts."""
ROWS = 128
"""Queries whose rows of attention exist at once."""
LEAST = 0.01
"""Mass below which a difference is no need."""
SURE = 0.01
"""Below this q value a difference is sure, as for a tag."""
FEWEST = 3
"""Windows below which nothing is said."""
YES, NO, UNSURE = "yes", "no", "unsure"


def far_masses(
    model: Model,
    windows: Sequence[Window],
    shared: int,
    sinks: int,
    advance: Advance = lambda _: None,
) -> Float[ndarray, "side window layer key_value"]:
    """The mass on far text, first on the document's own, then on another's in its place.

    A window's last quarter, or its last 128 tokens if those are more, is kept; what stands before
    it is the far text, and in the control that of the next window which is of another document.
    The queries are the kept tokens but the first 64, so that each sees its own last 64 tokens
    both times. Only keys in the far text count, the first `sinks` left out.

    Args:
        model: a model that runs under the fused engine.
        windows: of several documents, each of 192 tokens or more.
        shared: key/value heads of a layer.
        sinks: first keys that do not count.
        advance: told the tokens of each pass.

    Returns:
        Means over queries and over the query heads that share a key/value head; no window where
        none has another document's text beside it.
    """
    rows: list[ndarray] = []
    for place, window in enumerate(windows):
        cut = len(window) - max(2 * NEAR, len(window) // 4)
        other = _another(windows, place, cut)
        if other is None:
            continue
        foreign = np.concatenate([other.tokens[:cut], window.tokens[cut:]])
        pair = [
            _mass(model, tokens, cut, shared=shared, sinks=sinks)
            for tokens in (window.tokens, foreign)
        ]
        rows.append(np.stack(pair))
        advance(2 * len(window))
    shape = (2, 0, model.layers, shared)
    return np.stack(rows, 1) if rows else np.zeros(shape)


@dataclass(frozen=True, eq=False)
class Need:
    """By how much more mass lies on the own far text than on a foreign one; NaN if unmeasured."""

    lift: Float[ndarray, "layer key_value"]
    low: Float[ndarray, "layer key_value"]
    """Ends of the 95 % interval of the lift, by bootstrap over windows."""
    high: Float[ndarray, "layer key_value"]
    q_value: Float[ndarray, "layer key_value"]
    """Of lift > 0: Student's test over windows, Benjamini–Hochberg over all heads."""

    @property
    def verdicts(self) -> list[str]:
        """`yes`, `no` or `unsure` of each head in the order of layers; empty if unmeasured."""
        columns = (self.lift, self.high, self.q_value)
        return [verdict(*each) for each in zip(*(x.ravel().tolist() for x in columns), strict=True)]


def needs(masses: Float[ndarray, "side window layer key_value"], *, seed: int) -> Need:
    """Whether each head's mass is on what the far text says; windows are the units."""
    apart = masses[0] - masses[1]
    windows, heads = len(apart), apart.shape[1:]
    if windows < FEWEST:
        nothing = np.full(heads, np.nan)
        return Need(nothing, nothing, nothing, nothing)
    draws = resample(windows, np.random.default_rng(seed))
    low, high = interval(apart, np.ones(windows), draws)
    lift, error = apart.mean(0), apart.std(0, ddof=1) / np.sqrt(windows)
    # every window may show the same difference to the last digit, that of rounding
    p_value = stats.t.sf(lift / np.maximum(error, np.finfo(np.float32).eps), windows - 1)
    q_value = stats.false_discovery_control(p_value.ravel()).reshape(heads)
    return Need(lift, low, high, q_value)


def verdict(lift: float, high: float, q_value: float) -> str:
    """`yes`: surely more mass on the own far text; `no`: surely not; `unsure`; empty unmeasured.

    >>> verdict(0.2, 0.3, 0.001), verdict(0.0, 0.002, 0.4), verdict(0.02, 0.05, 0.2)
    ('yes', 'no', 'unsure')
    """
    if np.isnan(q_value):
        return ""
    if lift >= LEAST and q_value < SURE:
        return YES
    return NO if high < LEAST else UNSURE


def _another(windows: Sequence[Window], place: int, cut: int) -> Window | None:
    """The next window, from the first on again, of another document and long enough."""
    own = windows[place].document
    following = (*windows[place + 1 :], *windows[:place])
    return next((w for w in following if w.document != own and len(w) >= cut), None)


def _mass(
    model: Model, tokens: ndarray, cut: int, *, shared: int, sinks: int
) -> Float[ndarray, "layer key_value"]:
    found = np.zeros((model.layers, shared))
    row = {layer: place for place, layer in enumerate(model.attention_layers)}
    starts = range(cut + NEAR, len(tokens), ROWS)
    tiles = [Tile(slice(0, 1), slice(at, min(at + ROWS, len(tokens)))) for at in starts]

    def take(layer: int, rows: Iterable[Rows]) -> None:
        for logarithms in rows:
            mass: Tensor = logarithms[0, :, :, sinks:cut].exp().sum((1, 2))
            found[row[layer]] += mass.view(shared, -1).mean(1).double().cpu().numpy()

    on_device: Tensor = torch.from_numpy(tokens)[None].to(model.device)
    model.engine.run(on_device, tiles, take)
    return found / (len(tokens) - cut - NEAR)
