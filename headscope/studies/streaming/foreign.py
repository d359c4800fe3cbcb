"""Mass of heads on far text, compared with that on another document's text in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import stats

from headscope.corpus.window import Window
from headscope.measure.bootstrap import interval, resample
from headscope.models.engines.engine import Tile
from headscope.models.load import Model
from headscope.models.loss import Advance
from headscope.models.stream import LayerAttention, stream_attention

NEAR_TOKENS = 64
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
    sinks: int,
    advance: Advance = lambda tokens: None,
) -> Float[ndarray, "side window layer key_value"]:
    """The mass on far text, first on the document's own, then on another's in its place.

    A window's last quarter, or its last 128 tokens if those are more, is kept; what stands before
    it is the far text, and in the control that of the next window which is of another document.
    The queries are the kept tokens but the first 64, so that each sees its own last 64 tokens
    both times. Only keys in the far text count, the first `sinks` left out.

    Args:
        model: a model that runs under the fused engine.
        windows: of several documents, each of 192 tokens or more.
        sinks: first keys that do not count.
        advance: called with the tokens of each pass.

    Returns:
        Means over queries and over the query heads that share a key/value head; no window where
        none has another document's text beside it.
    """
    pairs: list[ndarray] = []
    for number, window in enumerate(windows):
        cut = len(window) - max(2 * NEAR_TOKENS, len(window) // 4)
        other = _foreign_window(windows, number, cut)
        if other is None:
            continue
        foreign = replace(window, tokens=np.concatenate([other.tokens[:cut], window.tokens[cut:]]))
        pairs.append(np.stack([_mass(model, text, cut, sinks) for text in (window, foreign)]))
        advance(2 * len(window))
    shape = (2, 0, model.layers, model.key_value_heads)
    return np.stack(pairs, 1) if pairs else np.zeros(shape)


@dataclass(frozen=True, eq=False)
class Need:
    """Mass on the own far text beyond that on a foreign one; NaN if unmeasured."""

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
        rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
        return [verdict(*row) for row in rows]


def needs(masses: Float[ndarray, "side window layer key_value"], *, seed: int) -> Need:
    """The test of each head's mass against that on foreign text; windows are the units."""
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


def _foreign_window(windows: Sequence[Window], number: int, cut: int) -> Window | None:
    """The next window, from the first on again, of another document and long enough."""
    document = windows[number].document
    following = (*windows[number + 1 :], *windows[:number])
    return next((w for w in following if w.document != document and len(w) >= cut), None)


def _mass(model: Model, window: Window, cut: int, sinks: int) -> Float[ndarray, "layer key_value"]:
    sums = np.zeros((model.layers, model.key_value_heads))
    row = {layer: number for number, layer in enumerate(model.attention_layers)}
    starts = range(cut + NEAR_TOKENS, len(window), ROWS)
    tiles = [Tile(slice(0, 1), slice(at, min(at + ROWS, len(window)))) for at in starts]

    def add(attention: LayerAttention) -> None:
        for rows in attention.log_probabilities():
            mass = rows[0, :, :, sinks:cut].exp().sum((1, 2)).view(model.key_value_heads, -1)
            sums[row[attention.layer]] += mass.mean(1).double().cpu().numpy()

    stream_attention(model, [window], lambda _: tiles, add)
    return sums / (len(window) - cut - NEAR_TOKENS)
