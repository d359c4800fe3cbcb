"""Windows of each stimulus for studies of single queries, of text of many documents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from headscope.corpus.window import Window
from headscope.measure.made import How, plan_made
from headscope.measure.stimuli import TextWindows
from headscope.models.load import Model

LENGTH = 256
READ = 60_000
"""Tokens of text that are looked through for windows of many documents."""
MOST, OF_EACH = 64, 2
"""Windows of text that are run, and of each document."""
COUNTS = {"repeat": 24, "pairs": 48, "facts": 16, "words": 24}
"""Documents of each other stimulus."""


def edge_windows(
    model: Model, corpora: Sequence[str | Path], stimuli: Collection[str], *, seed: int
) -> list[Window]:
    """Windows of each stimulus, those of text of as many documents as there are.

    Raises:
        CorpusError: the text cannot be read.
    """
    length = min(LENGTH, model.context)
    found: list[Window] = []
    if "text" in stimuli:
        text = TextWindows(
            corpora, model.tokenizer, max_tokens=READ, max_length=length, seed=seed + 1
        )
        found += spread([window for window in text if len(window) > 2])
    for stimulus, count in COUNTS.items():
        how = How(model.tokenizer, model.vocabulary_size, length, seed + 1, count)
        found += plan_made({stimulus} & {*stimuli}, how)
    return found


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
    each = max(OF_EACH, -(-MOST // max(1, len(documents))))
    found = []
    for turn in range(each):
        found += [own[turn] for own in documents.values() if turn < len(own)]
    return sorted(found[:MOST], key=lambda window: window.document)
