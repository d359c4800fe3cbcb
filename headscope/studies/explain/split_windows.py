"""Windows that fit, choose and judge rules, and the resting tokens of the fitting ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.sink_columns import find_sink_columns, late_tiles
from headscope.measure.study_windows import evenly
from headscope.models.batching import ALL_TOGETHER
from headscope.models.load import Model
from headscope.models.stream import LayerAttention, stream_attention
from headscope.stimuli.text import TextWindows

LENGTH = 128
"""Tokens of a window: most attention is nearer, and the number of cells grows as the square."""
SPREAD = 1_200
"""Tokens of text per window, so that windows come from many documents."""
PARTS = 4
"""Of four documents two fit, one chooses and one judges."""
LOSS_WINDOWS = 24
RESTING_SHARE, MIN_RESTING = 0.1, 3
"""Least share and number of windows in which a resting token is a sink column of the layer."""
RESTING_WINDOWS = 16


class SplitWindows(NamedTuple):
    """Windows by purpose; the first three share no document."""

    fitting: tuple[Window, ...]
    choosing: tuple[Window, ...]
    judging: tuple[Window, ...]
    loss: tuple[Window, ...]
    """Windows of the judging documents on which the loss is measured."""
    notes: tuple[str, ...]


def read_split_windows(
    model: Model, corpus: str | Path | Sequence[str | Path], *, windows: int, seed: int
) -> SplitWindows:
    """Read windows spread over a corpus, and divide them by document.

    Raises:
        CorpusError: a corpus cannot be read, or has fewer than four windows.
    """
    corpora = asked_corpora(corpus)
    text = TextWindows(
        corpora,
        model.tokenizer,
        max_tokens=windows * SPREAD,
        max_length=min(LENGTH, model.context),
        seed=seed,
    )
    windows_read, notes = [window for window in text if len(window) > 2], []
    if len({window.document for window in windows_read}) < 2 * PARTS:
        notes.append(
            f"fewer than {2 * PARTS} documents: each window counts as one, and intervals are too "
            "narrow"
        )
        windows_read = [replace(window, document=i) for i, window in enumerate(windows_read)]
    if len(windows_read) < PARTS:
        raise CorpusError(
            f"{', '.join(map(str, corpora))}: {len(windows_read)} windows of text; a rule needs at "
            f"least {PARTS}, because it is fitted, chosen and judged on different ones"
        )
    documents = sorted({window.document for window in windows_read})
    part = {document: i % PARTS for i, document in enumerate(documents)}

    def some(parts: Collection[int], count: int) -> tuple[Window, ...]:
        of_parts = [window for window in windows_read if part[window.document] in parts]
        return tuple(of_parts[i] for i in evenly(len(of_parts), max(1, count)))

    return SplitWindows(
        some((0, 1), windows // 2),
        some((2,), windows // 4),
        some((3,), windows // 4),
        some((3,), LOSS_WINDOWS),
        tuple(notes),
    )


def resting_tokens(model: Model, windows: Sequence[Window]) -> dict[int, frozenset[int]]:
    """Resting tokens of each layer that has some: tokens that are often its sink columns.

    Late queries of a layer leave much of their attention on a few early keys, such as an early
    "the"; see `find_sink_columns`. Token 1 is left out, because it has a feature of its own.

    Args:
        model: a model of any engine.
        windows: the fitting text, of which at most `RESTING_WINDOWS` are read.
    """
    windows = windows[:: -(-len(windows) // RESTING_WINDOWS)]
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
        least = max(MIN_RESTING, RESTING_SHARE * len(tiles))
        often = frozenset(token for token, count in tokens.items() if count >= least)
        if often:
            by_layer[attention.layer] = often

    stream_attention(model, windows, lambda _: tiles, add, batch_tokens=ALL_TOGETHER)
    return by_layer
