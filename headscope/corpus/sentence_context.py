"""Stretches of a window: the sentences around what is asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from headscope.corpus.window import Window


def stretches(window: Window, spans: Iterable[tuple[int, int]]) -> Iterator[Window]:
    """The whole sentences that cover each span, and one before; those that meet are one stretch.

    Each begins with the beginning-of-text token, and ends with what closes the window.

    Args:
        window: natural text.
        spans: first and last position, both included, in any order.
    """
    sentence = window.sentence_of_token
    runs: list[tuple[int, int]] = []
    for first, last in sorted(
        (int(sentence[start]) - 1, int(sentence[stop])) for start, stop in spans
    ):
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(runs[-1][1], last))
        else:
            runs.append((first, last))
    for number, (first, last) in enumerate(runs):
        inside = np.flatnonzero((sentence >= first) & (sentence <= last))
        stop = min(int(inside[-1]) + 1, window.stop)
        yield _stretch(window, max(1, int(inside[0])), stop, number)


def _stretch(window: Window, start: int, stop: int, number: int) -> Window:
    """The tokens of `[start, stop)` behind the first token, with what lies among them whole."""
    inner = window.inner[(window.inner >= start) & (window.inner < stop)]
    return replace(
        window,
        name=f"{window.name}.{number}",
        tokens=np.concatenate(
            [window.tokens[:1], window.tokens[start:stop], window.tokens[window.stop :]]
        ),
        strings=(window.strings[0], *window.strings[start:stop], *window.strings[window.stop :]),
        words=window.words.between(start, stop),
        mentions=window.mentions.between(start, stop),
        inner=inner - start + 1,
        arrows=window.arrows.between(start, stop),
    )
