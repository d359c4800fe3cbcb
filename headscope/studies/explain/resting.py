"""Resting columns as features: found on the fitted documents, known by their tokens ever after.

Late queries of a layer leave much of their attention on a few early keys, whatever they are. Which
keys those are hangs on their tokens: an early "the", the space before a number. So tokens are what
a rule asks for, and the text alone says where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from headscope.corpus.window import Window
from headscope.measure.sink_columns import find_sink_columns, late_tiles
from headscope.models.batching import ALL_TOGETHER
from headscope.models.load import Model
from headscope.models.stream import LayerAttention, stream_attention

OFTEN = 0.1
"""Of the windows of a layer in which a token is a resting column: less is that text's own."""
FEWEST = 3
"""Windows in which it must be one in any case."""
READ = 16
"""Windows that are read to find them: what a layer rests on shows in most of them."""


def resting_tokens(model: Model, windows: Sequence[Window]) -> dict[int, frozenset[int]]:
    """The tokens that a model's layers rest on, by layer; layers that rest on none are left out.

    Columns are those of `find_sink_columns`. Token 1 is a place and has a feature of its own.

    Args:
        model: a model that runs under the fused engine.
        windows: text that is fitted; so many as are read are taken evenly among them.
    """
    windows = windows[:: -(-len(windows) // READ)]
    tiles = late_tiles(windows)
    by_layer: dict[int, frozenset[int]] = {}
    if not tiles:
        return by_layer

    def add(attention: LayerAttention) -> None:
        rows = zip(tiles, attention.rows, strict=True)
        resting = find_sink_columns(windows, rows, logarithms=attention.logarithms)
        tokens = Counter(
            int(token)
            for window, columns in zip(windows, resting.columns, strict=True)
            for token in np.unique(window.tokens[columns[columns > 1]])
        )
        least = max(FEWEST, OFTEN * len(tiles))
        often = frozenset(token for token, count in tokens.items() if count >= least)
        if often:
            by_layer[attention.layer] = often

    stream_attention(model, windows, lambda _: tiles, add, batch_tokens=ALL_TOGETHER)
    return by_layer
