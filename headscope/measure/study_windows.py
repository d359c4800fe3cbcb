"""Windows that studies read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.models.model import Model
from headscope.relations import all_stimuli
from headscope.stimuli.natural_text import TEXT, TextWindows
from headscope.stimuli.stimulus import StimulusConfig

MAX_TOKENS = 8_192
"""Tokens of text by default: about forty windows, each read some dozens of times."""
MAX_LENGTH = 256


def text_windows(
    model: Model,
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
) -> list[Window]:
    """Windows of natural text, the longest first; text that ships with headscope by default.

    They have `max_tokens` tokens at most: the last one is cut.

    Raises:
        CorpusError: a corpus cannot be read, or holds nothing to predict.
    """
    corpora = asked_corpora(corpus)
    text = TextWindows(
        corpora,
        model.tokenizer,
        max_tokens=max_tokens,
        max_length=min(MAX_LENGTH, model.context),
        seed=seed,
    )
    # `text` ends with a whole window, which may go beyond the limit
    up_to_limit = []
    tokens_left = max_tokens
    for window in text:
        within_limit = window
        if len(window) > tokens_left:
            # the first tokens, and the token that closes the window; annotation is lost
            end = max(0, tokens_left - window.ends)
            positions = [*range(end), *range(window.stop, len(window))]
            within_limit = Window(
                window.name,
                window.tokens[positions],
                tuple(window.strings[position] for position in positions),
                document=window.document,
                attention_kind=window.attention_kind,
                ends=window.ends,
            )
        up_to_limit.append(within_limit)
        tokens_left -= len(window)
    windows = long_enough(up_to_limit, corpora)
    # neighbours run together, and those of about one length need little padding
    return sorted(windows, key=len, reverse=True)


def long_enough(
    windows: Iterable[Window],
    corpora: Sequence[str | Path],
    *,
    tokens: int = 2,
    count: int | None = None,
) -> list[Window]:
    """The first `count` windows of at least so many tokens; all of them if it is None.

    Raises:
        CorpusError: the corpora give no such window.
    """
    enough = (window for window in windows if len(window) >= tokens)
    long_windows = list(islice(enough, count))
    if not long_windows:
        read = ", ".join(map(str, corpora))
        raise CorpusError(f"{read}: no window of text has the {tokens:,} tokens that are needed")
    return long_windows


def token_count(windows: Sequence[Window]) -> int:
    """Tokens of all windows, without padding."""
    return sum(map(len, windows))


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
    for row in all_stimuli().values():
        if row.name in stimuli:
            size = model.vocabulary_size, length, seed + 1, row.study_documents
            windows += row.windows(StimulusConfig(model.tokenizer, *size, corpora))
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
