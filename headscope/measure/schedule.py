"""The order of a run's batches, made from windows alone, before any model is at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.batches import Batch, batches
from headscope.measure.block_assignment import Chunk, chunks
from headscope.measure.tally import MIN_BLOCKS
from headscope.stimuli import STIMULI
from headscope.stimuli.stimulus import Rounds

Choose = Callable[[Sequence[Window]], set[int]]
IsAlone = Callable[[Window], bool]


@dataclass(frozen=True, eq=False)
class Step:
    """A batch in its place among all batches of a run."""

    batch: Batch
    merge: Int[ndarray, " block"] | None
    """How the blocks of the sums so far are merged before this batch's are added, if at all."""
    shared: bool
    """Whether the twin reads it too."""

    @property
    def tokens(self) -> int:
        """Its tokens, padding left out."""
        return sum(map(len, self.batch.windows))


def rounds_of(
    rounds: Iterable[tuple[Iterable[Window], Sequence[Window]]],
    *,
    batch_tokens: int,
    share: Choose,
    is_alone: IsAlone = lambda window: False,
) -> Iterator[Iterator[Step]]:
    """The batches of a run in order, round by round; each round must be taken before the next.

    In each chunk the batches that the twin reads too come first.

    Args:
        rounds: windows of natural text, those of each round one after the other, which need not fit
            into memory, and beside them those of other stimuli.
        batch_tokens: tokens of one forward pass.
        share: says which of the next windows the twin reads; asked once for each chunk, in order.
        is_alone: says which windows are batches by themselves.
    """
    for chunks_of_round in chunks(rounds):
        yield _steps(chunks_of_round, batch_tokens, share, is_alone)


def _steps(
    chunks_of_round: Iterable[Chunk], batch_tokens: int, share: Choose, is_alone: IsAlone
) -> Iterator[Step]:
    for chunk in chunks_of_round:
        shared = share(chunk.windows)
        merge = chunk.merge
        for again in (True, False):
            places = [i for i in range(len(chunk.windows)) if (i in shared) == again]
            alone = [i for i in places if is_alone(chunk.windows[i])]
            for rows in ([i for i in places if i not in alone], *([i] for i in alone)):
                windows = [chunk.windows[i] for i in rows]
                profiled = {
                    row: chunk.profiled[i] for row, i in enumerate(rows) if i in chunk.profiled
                }
                blocks = chunk.blocks[np.array(rows, int)]
                for batch in batches(windows, blocks, profiled, tokens=batch_tokens):
                    yield Step(batch, merge, again)
                    merge = None


def split(text: Iterable[Window], interim_tokens: Sequence[int]) -> Iterator[Iterator[Window]]:
    """A text in rounds that end after so many tokens each, counted from its beginning.

    >>> windows = [Window(str(i), np.arange(9), ("a",) * 9) for i in range(6)]
    >>> [[window.name for window in own] for own in split(windows, [10, 30])]
    [['0', '1'], ['2', '3'], ['4', '5']]
    """
    windows, tokens = iter(text), 0

    def until(end: int | float) -> Iterator[Window]:
        nonlocal tokens
        while tokens < end and (window := next(windows, None)) is not None:
            tokens += len(window)
            yield window

    for end in (*interim_tokens, float("inf")):
        yield until(end)


ROUND_DOCUMENTS = 2 * MIN_BLOCKS
"""Documents of a stimulus that are read in a round: both halves of them say how sure they are."""


def round_of(window: Window) -> int:
    """The round, counted from 0, in which a window of another stimulus than text is read.

    >>> [round_of(Window("", np.arange(3), ("a",) * 3, stimulus="repeat", document=i))
    ...  for i in (0, 7, 8, 15, 16, 63)]
    [0, 0, 1, 1, 2, 4]
    """
    row, document = STIMULI[window.stimulus], max(0, window.document)
    if row.rounds is not Rounds.DOCUMENTS:
        return 1
    return 0 if document < row.before_text else 1 + document // ROUND_DOCUMENTS
