"""Windows dealt into blocks by document, without knowing how many will come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.tally import BLOCKS, MIN_BLOCKS, PROFILES
from headscope.stimuli.text import TEXT

AT_ONCE = 2 * BLOCKS
"""Windows of text that are in memory at once."""
STRETCHES = BLOCKS // 2
"""Of a few documents' stretches there are at most so many: the longer they are, the less does one
depend on the next. More than half as many remain when they are merged."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some windows, each with its block."""

    windows: Sequence[Window]
    blocks: Int[ndarray, " window"]
    profiled: dict[int, int]
    """Windows whose head profile is taken, each with its place among the profiled ones."""
    merge: Int[ndarray, " block"] | None = None
    """How the blocks so far are merged before these are added, if at all; see `Tally.merge`."""


def chunks(
    rounds: Iterable[tuple[Iterable[Window], Sequence[Window]]],
) -> Iterator[Iterator[Chunk]]:
    """Windows of text as they come, and those of other stimuli after the text of their round.

    A document lies in one block: documents are dealt like cards, so that blocks hold equally many,
    however many come. As long as there are too few for an interval, each is cut into stretches of
    consecutive windows, which become longer as the text does; when the eighth document comes, the
    stretches of each document are put together again.

    Args:
        rounds: windows of text and of other stimuli; each round must be taken before the next.
    """
    dealer, profiled = _BlockAssigner(), False

    def chunks_of_round(text: Iterable[Window], synthetic: Sequence[Window]) -> Iterator[Chunk]:
        nonlocal profiled
        windows = iter(text)
        while chunk := list(islice(windows, AT_ONCE)):
            blocks, merge = dealer.assign_blocks([window.document for window in chunk])
            yield Chunk(chunk, blocks, {} if profiled else _profiled(chunk), merge)
            profiled = True
        if synthetic:
            yield Chunk(synthetic, *assign_blocks(synthetic))

    for text, synthetic in rounds:
        yield chunks_of_round(text, synthetic)


def assign_blocks(windows: Sequence[Window]) -> tuple[Int[ndarray, " window"], dict[int, int]]:
    """Deal windows that are all there, and say which to profile, each with its place.

    Text is dealt as `chunks` deals it, documents of other stimuli like cards.
    """
    alone = max((window.document for window in windows), default=-1) + 1
    numbers = np.array(
        [alone + i if w.document < 0 else w.document for i, w in enumerate(windows)], np.int64
    )
    blocks = numbers % BLOCKS
    text = [i for i, window in enumerate(windows) if window.stimulus == TEXT.name]
    if text:
        blocks[text] = _BlockAssigner().assign_blocks(numbers[text].tolist())[0]
    return blocks, _profiled(windows)


class _BlockAssigner:
    def __init__(self) -> None:
        self._windows: Counter[int] = Counter()
        """Windows so far of each document, as long as there are few."""
        self._size = 1
        """Windows of a stretch."""
        self._blocks: dict[tuple[int, int], int] = {}
        """The block of each stretch, by its document and its number in it."""

    def assign_blocks(
        self, documents: Sequence[int]
    ) -> tuple[Int[ndarray, " window"], Int[ndarray, " block"] | None]:
        """The blocks of windows of these documents, and how those before them are merged."""
        if len({*self._windows, *documents}) < MIN_BLOCKS:
            return self._stretch(documents)
        merge = {block: document % BLOCKS for (document, _), block in self._blocks.items()}
        self._blocks = {}
        if len(self._windows) < MIN_BLOCKS:  # later ones need not be counted
            self._windows.update(documents)
        return np.array(documents) % BLOCKS, _merging(merge)

    def _stretch(
        self, documents: Sequence[int]
    ) -> tuple[Int[ndarray, " window"], Int[ndarray, " block"] | None]:
        numbers = []
        for document in documents:
            numbers.append((document, self._windows[document]))
            self._windows[document] += 1
        before, before_size = self._blocks, self._size
        while sum(-(-count // self._size) for count in self._windows.values()) > STRETCHES:
            self._size *= 2
        times = self._size // before_size
        self._blocks = {}
        for stretch in [(document, number // times) for document, number in before]:
            self._blocks.setdefault(stretch, len(self._blocks))
        merge = {
            block: self._blocks[document, number // times]
            for (document, number), block in before.items()
        }
        stretches = [(document, number // self._size) for document, number in numbers]
        for stretch in stretches:
            self._blocks.setdefault(stretch, len(self._blocks))
        return np.array([self._blocks[stretch] for stretch in stretches]), _merging(merge)


def _merging(into: dict[int, int]) -> Int[ndarray, " block"] | None:
    """The block that each block's sums go to; None when all stay."""
    if all(block == to for block, to in into.items()):
        return None
    merge = np.arange(BLOCKS)
    merge[list(into)] = list(into.values())
    return merge


def _profiled(windows: Sequence[Window]) -> dict[int, int]:
    """One text window of eight, of few windows more."""
    text = [i for i, window in enumerate(windows) if window.stimulus == TEXT.name]
    every = max(1, min(AT_ONCE // PROFILES, len(text) // 4))
    return {i: rank for rank, i in enumerate(text[::every][:PROFILES])}
