"""Windows of each stimulus for studies of single queries, of text of many documents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.models.load import Model
from headscope.stimuli import STIMULI
from headscope.stimuli.stimulus import StimulusConfig
from headscope.stimuli.text import TEXT, TextWindows

LENGTH = 256
READ = 60_000
"""Tokens of text that are looked through for windows of many documents."""
MAX_WINDOWS, PER_DOCUMENT = 64, 2
"""Windows of text that are run, and of each document."""


def edge_windows(
    model: Model, corpora: Sequence[str | Path], stimuli: Collection[str], *, seed: int
) -> list[Window]:
    """Windows of each stimulus, those of text of as many documents as there are.

    Raises:
        CorpusError: the text cannot be read.
    """
    length = min(LENGTH, model.context)
    windows: list[Window] = []
    if TEXT.name in stimuli:
        text = TextWindows(
            corpora, model.tokenizer, max_tokens=READ, max_length=length, seed=seed + 1
        )
        windows += spread([window for window in text if len(window) > 2])
    for row in STIMULI.values():
        if row.name in stimuli and row.build is not None and row.study_documents:
            size = model.vocabulary_size, length, seed + 1, row.study_documents
            windows += row.build(StimulusConfig(model.tokenizer, *size))
    return windows


def evenly(size: int, count: int) -> Int[ndarray, " item"]:
    """`count` of the numbers below `size`, evenly spread; all of them when there are fewer."""
    count = min(size, count)
    # the middle of each of as many equal stretches
    return ((np.arange(count) + 0.5) * size / max(count, 1)).astype(np.int64)


def spread(windows: Sequence[Window]) -> list[Window]:
    """A few windows of each document; more where there are few documents.

    >>> import numpy as np
    >>> window = Window("w", np.arange(3), ("a",) * 3)
    >>> len(spread([window] * 100))
    64
    """
    documents: dict[int, list[Window]] = {}
    for window in windows:
        documents.setdefault(window.document, []).append(window)
    per_document = max(PER_DOCUMENT, -(-MAX_WINDOWS // max(1, len(documents))))
    spread_windows = []
    for number in range(per_document):
        spread_windows += [
            of_document[number] for of_document in documents.values() if number < len(of_document)
        ]
    return sorted(spread_windows[:MAX_WINDOWS], key=lambda window: window.document)
