"""Which text an explanation reads: documents that fit, that choose, that judge, that are run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.stimuli import TextWindows
from headscope.models.load import Model

LENGTH = 128
"""Tokens of a window: attention beyond it is rare in text, and its cells grow with the square."""
SPREAD = 1_200
"""Tokens of text that each chosen window is spread over: neighbours are of one document."""
PARTS = 4
"""Of four documents two fit, one chooses, one judges."""
LOSS_WINDOWS = 24
STEP = 2
"""Every second query of a window: neighbours say nearly the same, other documents say more."""


@dataclass(frozen=True, eq=False)
class Read:
    """Windows by what they are for; no document is in two of the first three."""

    fitted: tuple[Window, ...]
    choosing: tuple[Window, ...]
    judging: tuple[Window, ...]
    run: tuple[Window, ...]
    """Of documents that judge: where the loss is taken."""
    notes: tuple[str, ...]

    @property
    def windows(self) -> tuple[Window, ...]:
        """Those that fit, then those that choose, then those that judge."""
        return (*self.fitted, *self.choosing, *self.judging)


def read_texts(
    model: Model, corpus: str | Path | Sequence[str | Path], *, windows: int, seed: int
) -> Read:
    """Windows spread over a corpus, dealt by document.

    Raises:
        CorpusError: a corpus cannot be read, or has fewer than four windows to deal.
    """
    corpora = asked_corpora(corpus)
    text = TextWindows(
        corpora,
        model.tokenizer,
        max_tokens=windows * SPREAD,
        max_length=min(LENGTH, model.context),
        seed=seed,
    )
    found, notes = [window for window in text if len(window) > 2], []
    if len({window.document for window in found}) < 2 * PARTS:
        notes.append(
            f"fewer than {2 * PARTS} documents: each window counts as one, and intervals are too "
            "narrow"
        )
        found = [replace(window, document=i) for i, window in enumerate(found)]
    if len(found) < PARTS:
        raise CorpusError(
            f"{', '.join(map(str, corpora))}: {len(found)} windows of text; a rule is fitted, "
            f"chosen and judged on different ones, which takes {PARTS} at least"
        )
    part = {document: i % PARTS for i, document in enumerate(sorted({w.document for w in found}))}
    dealt = [[w for w in found if part[w.document] == i] for i in range(PARTS)]
    fitted = _evenly([w for w in found if part[w.document] < 2], windows // 2)
    choosing, judging = (_evenly(own, windows // 4) for own in dealt[2:])
    run = _evenly(dealt[3], LOSS_WINDOWS)
    return Read(fitted, choosing, judging, run, tuple(notes))


def _evenly(windows: Sequence[Window], count: int) -> tuple[Window, ...]:
    """So many of the windows, evenly spread; all of them when there are fewer."""
    count = max(1, min(count, len(windows)))
    places = ((np.arange(count) + 0.5) * len(windows) / count).astype(int)
    return tuple(windows[i] for i in places.tolist())
