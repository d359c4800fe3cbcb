"""Resting columns as features: found on the fitted documents, known by their tokens ever after.

Late queries of a layer leave much of their attention on a few early keys, whatever they are. Which
keys those are hangs on their tokens: an early "the", the space before a number. So tokens are what
a rule asks for, and the text alone says where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from headscope.corpus.window import Window
from headscope.measure.resting import find_resting, late_tiles
from headscope.models.engines.engine import Engine, Rows
from headscope.studies.explain.feature import Cells, Feature, Lexicon, after, cells
from headscope.studies.explain.reading import padded

OFTEN = 0.1
"""Of the windows of a layer in which a token is a resting column: less is that text's own."""
FEWEST = 3
"""Windows in which it must be one in any case."""
READ = 16
"""Windows that are read to find them: what a layer rests on shows in most of them."""
_ORDER = ("first", "second")


def resting_tokens(
    engine: Engine, windows: Sequence[Window], device: str
) -> dict[int, frozenset[int]]:
    """The tokens that a model's layers rest on, by layer; layers that rest on none are left out.

    Columns are those of `find_resting`. Token 1 is a place and has a feature of its own.

    Args:
        engine: of the model.
        windows: text that is fitted; so many as are read are taken evenly among them.
        device: where the model is.
    """
    windows = windows[:: -(-len(windows) // READ)]
    tiles = late_tiles(windows)
    found: dict[int, frozenset[int]] = {}
    if not tiles:
        return found

    def take(layer: int, rows: Iterable[Rows]) -> None:
        resting = find_resting(windows, zip(tiles, rows, strict=True), logarithms=engine.logarithms)
        tokens = Counter(
            int(token)
            for window, columns in zip(windows, resting.columns, strict=True)
            for token in np.unique(window.tokens[columns[columns > 1]])
        )
        least = max(FEWEST, OFTEN * len(tiles))
        own = frozenset(token for token, count in tokens.items() if count >= least)
        if own:
            found[layer] = own

    engine.run(padded(windows).to(device), tiles, take)
    return found


def resting(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """Any token that some layer rests on, and the first and the second such token of the text."""
    tokens = frozenset[int]().union(*lexicon.resting.values())
    keys = np.flatnonzero(np.isin(window.tokens, sorted(tokens)))
    keys = keys[keys > 0]
    if not len(keys):
        return
    shown = ", ".join(f"“{lexicon.shown(token)}”" for token in sorted(tokens))
    every = Feature("resting token", f"any resting token ({shown})", "lexical", tokens)
    yield cells(every, *after(len(window), keys, itself=False))
    for place, order in enumerate(_ORDER):
        said = f"the text's {order} resting token ({shown})"
        own = Feature(f"{order} resting token", said, "lexical", tokens)
        yield cells(own, *after(len(window), keys[place : place + 1], itself=False))
