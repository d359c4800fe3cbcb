"""Windows of text that are longer than what a streaming head keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.models.load import Model
from headscope.stimuli.text import TextWindows
from headscope.studies.streaming.streaming_heads import SinkWindow

FULL = 0.75
"""Of the longest window: the share from which on a document's window counts as long."""
LONG = 1_024
"""Tokens from which on a document has a far context, where the model reads as many."""
SHORTEST = 192
"""Tokens that it must have in any case: 64 far ones, 64 that every query sees, and 64 queries."""
MOST_DOCUMENTS = 16
"""Of such documents."""


@dataclass(frozen=True, eq=False)
class LongText:
    """Windows to rank key/value heads by, and others to judge the ranking by."""

    ranking: Sequence[Window]
    judging: Sequence[Window]
    single_document: Sequence[Window]
    """Windows of one document each, to be read after another document's text."""
    note: str
    """A remark for the reader about them; may be empty."""

    @property
    def length(self) -> int:
        """Tokens of the longest."""
        return max(map(len, (*self.ranking, *self.judging)))


def long_text(
    model: Model,
    corpus: str | Path | Sequence[str | Path] | None,
    sink_window: SinkWindow,
    *,
    max_length: int,
    max_tokens: int,
    seed: int,
) -> LongText:
    """Windows of about `max_length` tokens, every second one to rank by and the others to judge.

    Where documents are shorter, they are joined one after the other, and the note says so: what
    lies far back is then often another document, which few heads have a reason to read.

    Raises:
        CorpusError: the text cannot be read, or no window is longer than what is kept, or there
            is but one.
    """
    corpora = asked_corpora(corpus)
    options = {"max_tokens": max_tokens, "seed": seed}
    windows = list(TextWindows(corpora, model.tokenizer, max_length=max_length, **options))
    full = [window for window in windows if len(window) >= FULL * max_length]
    note = ""
    if 2 * sum(map(len, full)) < sum(map(len, windows)):
        longest = max(map(len, windows))
        full = joined(windows, max_length)
        note = (
            f"documents of at most {longest:,} tokens joined to windows of {max_length:,}: what "
            "is far is then often another document"
        )
    full = [window for window in full if len(window) > sink_window.reach]
    if not full:
        longest = max(map(len, windows), default=0)
        raise CorpusError(
            f"no window of {', '.join(map(str, corpora))} is longer than the {sink_window.reach} "
            f"tokens that a streaming head keeps (the longest has {longest}), so that streaming "
            "would change nothing"
        )
    if len(full) < 2:
        raise CorpusError(
            "the text is one long window, and streaming needs two: one to rank heads, one to "
            "judge; name more text or raise max_tokens"
        )
    least = max(SHORTEST, min(LONG, FULL * max_length))
    single = [window for window in windows if len(window) >= least][:MOST_DOCUMENTS]
    return LongText(full[::2], full[1::2], single, note)


def joined(windows: Sequence[Window], max_length: int) -> list[Window]:
    """Their text one after the other in windows of `max_length`, a last short one left out.

    Each begins with one beginning-of-text token; those of the windows within it are dropped.
    """
    text_length = max_length - 1
    tokens = np.concatenate([window.tokens[1:] for window in windows])
    strings = [string for window in windows for string in window.strings[1:]]
    first = windows[0]
    starts = range(0, len(tokens), text_length)
    pieces = [
        Window(
            f"joined#{number}",
            np.concatenate([first.tokens[:1], tokens[start : start + text_length]]),
            (first.strings[0], *strings[start : start + text_length]),
            document=number,
        )
        for number, start in enumerate(starts)
    ]
    return [window for window in pieces if len(window) >= FULL * max_length] or pieces[:1]
