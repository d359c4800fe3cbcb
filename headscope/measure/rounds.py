"""Rounds of reading: which windows come in which round.

Round 0 holds a few documents of other stimuli. Text begins in round 1. After each round the run
decides which stimuli are read no further.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from headscope.corpus.window import Window
from headscope.measure.sums import StoppedEarly
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations import all_stimuli
from headscope.stimuli.natural_text import TEXT

ROUND_DOCUMENTS = 2 * MIN_BLOCKS
"""Documents of a stimulus that are read in a round: both halves of them say how sure they are."""
Stopped = Mapping[str, StoppedEarly]


@runtime_checkable
class EarlyStopping(Protocol):
    """Decides after each round of reading which stimuli are read no further."""

    @property
    def interim_tokens(self) -> Sequence[int]:
        """Tokens of text after which a round of reading ends; the last round goes to the end."""

    def should_stop(self, tally: Tally, number: int, stopped: Stopped) -> Mapping[str, float]:
        """The stimuli that are read no further, each with the tags that the rest would change.

        Those in `stopped` are left out. It must depend on nothing but the arguments: after a kill
        it is called again.
        """


def round_of(window: Window) -> int:
    """The round, counted from 0, in which a window of another stimulus than text is read.

    >>> import numpy as np
    >>> [round_of(Window("", np.arange(3), ("a",) * 3, stimulus="repeat", document=i))
    ...  for i in (0, 7, 8, 15, 16, 63)]
    [0, 0, 1, 1, 2, 4]
    """
    stimulus, document = all_stimuli()[window.stimulus], max(0, window.document)
    if stimulus.build is None:
        return 1
    return 0 if document < stimulus.before_text else 1 + document // ROUND_DOCUMENTS


def was_read(window: Window, stopped: Stopped) -> bool:
    """True if a window of another stimulus than text was read before that was stopped."""
    return window.stimulus not in stopped or round_of(window) < stopped[window.stimulus].rounds


class Rounds:
    """The windows of each round; without early stopping all are in one round."""

    def __init__(
        self, text: Iterable[Window], others: Sequence[Window], stopping: EarlyStopping | None
    ) -> None:
        self._stream, self._others = iter(text), others
        self._text_tokens = 0
        if stopping is None:
            self._ends = [float("inf")]
            self._round_of_other = [0] * len(others)
        else:
            # before the first text come a few documents of other stimuli
            self._ends = [0, *stopping.interim_tokens, float("inf")]
            self._round_of_other = [round_of(window) for window in others]

    def __len__(self) -> int:
        return max(len(self._ends), 1 + max(self._round_of_other, default=0))

    def text(self, number: int, stopped: Stopped) -> Iterator[Window]:
        """Windows of text up to the end of a round; rounds must be taken in order."""
        ends_before = TEXT.name in stopped and number >= stopped[TEXT.name].rounds
        if number >= len(self._ends) or ends_before:
            return
        while self._text_tokens < self._ends[number]:
            window = next(self._stream, None)
            if window is None:
                return
            self._text_tokens += len(window)
            yield window

    def others(self, number: int, stopped: Stopped) -> list[Window]:
        """Windows of other stimuli in a round, but for those that were stopped before it."""
        numbered = zip(self._others, self._round_of_other, strict=True)
        return [window for window, at in numbered if at == number and was_read(window, stopped)]
