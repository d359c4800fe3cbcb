"""Windows that run together, and the blocks of documents into which their sums go.

Documents are dealt into blocks without knowing how many will come. Batches that do not fit into
memory are read in halves, and freed memory goes back to the system.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.errors import ModelError, is_out_of_memory
from headscope.measure.tally import BLOCKS, MIN_BLOCKS, PROFILES
from headscope.models.stream import in_batches, padded_tokens
from headscope.stimuli.natural_text import TEXT

T = TypeVar("T")
AT_ONCE = 2 * BLOCKS
"""Windows of text that are in memory at once."""
SIMILAR_LENGTH = 0.8
"""Least length of a window as a share of the longest of its batch: less padding is computed."""
STRETCHES = BLOCKS // 2
"""Most stretches into which a few documents are cut: the longer they are, the less one depends on
the next. More than half as many remain when they are merged."""
STRETCH = 32
"""Fewest tokens of a stretch of a window."""
PIECES = 64
"""Most pieces of a window, of which stretches consist; a power of two, so that stretches that are
doubled become whole windows."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Windows with their blocks; those of a forward pass run together, right-padded."""

    windows: Sequence[Window]
    blocks: Int[ndarray, " window"]
    profiled: dict[int, int] = field(default_factory=dict)
    """Rows whose head profile is taken, each with its place among the profiled windows."""
    merge: Int[ndarray, " block"] | None = None
    """The block that each block's sums so far go to before these are added; None: all stay."""
    query_blocks: dict[int, Int[ndarray, " query"]] = field(default_factory=dict)
    """For rows that are cut into stretches, the block of each query."""

    @property
    def token_count(self) -> int:
        """Number of tokens, padding left out."""
        return sum(map(len, self.windows))

    def blocks_of(
        self, row: int, queries: Int[ndarray, " pair"]
    ) -> Iterator[tuple[int, Bool[ndarray, " pair"]]]:
        """Blocks of some queries of a window, each with the mask of its queries."""
        if row not in self.query_blocks:
            yield int(self.blocks[row]), np.ones(len(queries), bool)
            return
        block_of_query = self.query_blocks[row][queries]
        for block in np.unique(block_of_query).tolist():
            yield block, block_of_query == block

    def blocks_of_queries(self, row: int) -> Int[ndarray, " query"]:
        """The block of every query of a window."""
        if row in self.query_blocks:
            return self.query_blocks[row]
        return np.full(len(self.windows[row]), self.blocks[row])

    def tokens(self) -> Int[Tensor, "window position"]:
        """Token ids, padded on the right; see `padded_tokens`."""
        return padded_tokens(self.windows)

    def take(self, rows: Sequence[int]) -> Batch:
        """Some of its windows, in this order."""
        windows = [self.windows[i] for i in rows]
        blocks = self.blocks[np.array(rows, int)]
        return Batch(
            windows,
            blocks,
            profiled=_renumbered(self.profiled, rows),
            query_blocks=_renumbered(self.query_blocks, rows),
        )

    def merging(self, merge: Int[ndarray, " block"]) -> Batch:
        """The same batch; the blocks of the sums so far are merged before it is added."""
        return replace(self, merge=merge)


def _renumbered(of_window: Mapping[int, T], rows: Sequence[int]) -> dict[int, T]:
    """What some windows have, by their new numbers: the first of `rows` becomes 0."""
    renumbered: dict[int, T] = {}
    for number, row in enumerate(rows):
        if row in of_window:
            renumbered[number] = of_window[row]
    return renumbered


def batches(windows: Batch, *, tokens: int) -> Iterator[Batch]:
    """Batches of at most `tokens` tokens, padding included, of windows of similar length."""
    lengths = [len(window) for window in windows.windows]
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    longest_first = [windows.windows[row] for row in order]
    start = 0
    for together in in_batches(longest_first, tokens, least=SIMILAR_LENGTH):
        end = start + len(together)
        yield windows.take(order[start:end])
        start = end


def in_memory(batch: Batch, read: Callable[[Batch], T]) -> list[T]:
    """Read a batch; if it does not fit into memory, its halves.

    Args:
        batch: windows that are to run together.
        read: runs them. It must change nothing before it is done.

    Returns:
        One result, or those of the parts in the order of their windows.

    Raises:
        ModelError: a window does not fit even alone; the message names its document.
    """
    size = len(batch.windows)
    try:
        return [read(batch)]
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        if size == 1:
            window = batch.windows[0]
            raise ModelError(
                f"{window.name}: a window of {len(window):,} tokens does not fit into memory "
                "beside the model; take shorter ones (--max-length), a smaller --dtype, or another "
                f"--device ({str(error).splitlines()[0] if str(error) else 'no memory'})"
            ) from error
    # here the error and the tensors that its traceback held are gone
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    halves = range(size // 2), range(size // 2, size)
    return [result for half in halves for result in in_memory(batch.take(half), read)]


def give_back() -> None:
    """Hand freed memory back to the system if the C library keeps it (glibc does).

    Work that makes and frees blocks of many sizes, layer after layer, leaves holes that are never
    filled again: the process grows though nothing is kept.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)


def in_stretches(batch: Batch) -> Batch:
    """The batch, with windows cut into stretches if they lie in too few blocks for an interval.

    Each query has the block of its stretch, of `STRETCH` tokens or more. The windows of a stimulus
    are cut into at most `STRETCHES`. Windows of text are cut when they are dealt.
    """
    query_blocks = dict(batch.query_blocks)
    for stimulus in {window.stimulus for window in batch.windows} - {TEXT.name}:
        rows = [i for i, window in enumerate(batch.windows) if window.stimulus == stimulus]
        if len({*batch.blocks[rows].tolist()}) >= MIN_BLOCKS:
            continue
        # few long stretches: the longer they are, the less one depends on the next
        tokens = sum(len(batch.windows[row]) for row in rows)
        size = max(STRETCH, -(-tokens // STRETCHES))
        # stretches are numbered through the windows of the stimulus
        first_block = 0
        for row in rows:
            length = len(batch.windows[row])
            count = max(1, length // size)
            stretch = np.arange(length) * count // length
            query_blocks[row] = (first_block + stretch) % BLOCKS
            first_block += count
    return replace(batch, query_blocks=query_blocks)


def assign_blocks(windows: Sequence[Window]) -> Batch:
    """Deal windows that are all there into blocks, and choose those to profile.

    Text is dealt as `TextBlocks` deals it, documents of other stimuli like cards.
    """
    documents = np.array([window.document for window in windows], np.int64)
    # a window of no document counts as a document of its own
    own_number = documents.max(initial=-1) + 1 + np.arange(len(windows))
    numbers = np.where(documents < 0, own_number, documents)
    blocks = numbers % BLOCKS
    query_blocks: dict[int, Int[ndarray, " query"]] = {}
    # text, whose documents may be too few, has blocks of its own
    text = [i for i, window in enumerate(windows) if window.stimulus == TEXT.name]
    if text:
        lengths = [len(windows[i]) for i in text]
        assigned = TextBlocks().assign_blocks(numbers[text].tolist(), lengths)
        blocks[text] = assigned.blocks
        for row, blocks_of_queries in assigned.query_blocks.items():
            query_blocks[text[row]] = blocks_of_queries
    return Batch(windows, blocks, _profiled(windows), query_blocks=query_blocks)


@dataclass(frozen=True, eq=False)
class AssignedBlocks:
    """Blocks of some windows, and what becomes of the blocks of those before them."""

    blocks: Int[ndarray, " window"]
    """The block of each window; of one that is cut, that of its first query."""
    merge: Int[ndarray, " block"] | None
    """The block that each block's sums so far go to; None when all stay."""
    query_blocks: dict[int, Int[ndarray, " query"]] = field(default_factory=dict)
    """For windows that are cut into stretches, the block of each query."""


class TextBlocks:
    """Deals windows of text into blocks as they come, however many come.

    A document lies in one block: documents are dealt like cards, so that blocks hold equally many.
    As long as there are too few for an interval, each is cut into stretches of text: parts of a
    window or consecutive windows. Stretches become longer as the text does; when the eighth
    document comes, those of each document are put together again.
    """

    def __init__(self) -> None:
        self._is_first = True
        self._windows: Counter[int] = Counter()
        """Windows so far of each document, as long as there are few documents."""
        self._piece = 0
        """Tokens of a piece of a window; 0 before the first window."""
        self._pieces = 1
        """Pieces of a window, a power of two."""
        self._size = 1
        """Pieces of a stretch, a power of two."""
        self._blocks: dict[tuple[int, int], int] = {}
        """Block of each stretch, by document and number of the stretch in the document."""

    def deal(self, windows: Sequence[Window]) -> Batch:
        """The next windows with their blocks; some of the first ones are profiled."""
        documents = [window.document for window in windows]
        lengths = [len(window) for window in windows]
        assigned = self.assign_blocks(documents, lengths)
        profiled = _profiled(windows) if self._is_first else {}
        self._is_first = False
        return Batch(windows, assigned.blocks, profiled, assigned.merge, assigned.query_blocks)

    def assign_blocks(self, documents: Sequence[int], lengths: Sequence[int]) -> AssignedBlocks:
        """Blocks of windows of these documents, and how those before them are merged.

        Args:
            documents: the document of each window.
            lengths: tokens of each window.
        """
        documents_so_far = {*self._windows, *documents}
        if len(documents_so_far) < MIN_BLOCKS:
            return self._stretch(documents, lengths)
        merge: dict[int, int] = {}
        for (document, _), block in self._blocks.items():
            merge[block] = document % BLOCKS
        self._blocks = {}
        if len(self._windows) < MIN_BLOCKS:  # later ones need not be counted
            self._windows.update(documents)
        blocks = np.array(documents) % BLOCKS
        return AssignedBlocks(blocks, _merging(merge))

    def _stretch(self, documents: Sequence[int], lengths: Sequence[int]) -> AssignedBlocks:
        if not self._piece:
            # the first windows decide how many pieces a window has, none shorter than `STRETCH`
            length = max(lengths)
            while self._pieces < PIECES and length // (2 * self._pieces) >= STRETCH:
                self._pieces *= 2
            self._piece = -(-length // self._pieces)
        # the first piece of each window in its document
        first_pieces = []
        for document in documents:
            first_pieces.append(self._windows[document] * self._pieces)
            self._windows[document] += 1
        # double the stretches until they are few enough, and merge the blocks of the sums so far
        before, before_size = self._blocks, self._size
        pieces = [count * self._pieces for count in self._windows.values()]
        while sum(-(-count // self._size) for count in pieces) > STRETCHES:
            self._size *= 2
        times = self._size // before_size
        self._blocks = {}
        new_blocks = {
            block: self._block(document, number // times)
            for (document, number), block in before.items()
        }
        merge = _merging(new_blocks)
        # blocks of the new windows; those that are cut have one for each query
        blocks = []
        query_blocks = {}
        for row, (document, first) in enumerate(zip(documents, first_pieces, strict=True)):
            # the window begins with this piece of its document; its last piece may be longer
            piece_in_window = np.arange(lengths[row]) // self._piece
            piece = np.minimum(piece_in_window, self._pieces - 1)
            stretch = (first + piece) // self._size
            stretches, stretch_number = np.unique(stretch, return_inverse=True)
            block_of_stretch = [self._block(document, int(number)) for number in stretches]
            of_queries = np.array(block_of_stretch)[stretch_number]
            blocks.append(int(of_queries[0]))
            if self._size < self._pieces:
                query_blocks[row] = of_queries
        return AssignedBlocks(np.array(blocks), merge, query_blocks)

    def _block(self, document: int, stretch: int) -> int:
        return self._blocks.setdefault((document, stretch), len(self._blocks))


def _merging(into: dict[int, int]) -> Int[ndarray, " block"] | None:
    """The block that each block's sums go to; None when all stay."""
    if all(block == to for block, to in into.items()):
        return None
    merge = np.arange(BLOCKS)
    merge[list(into)] = list(into.values())
    return merge


def _profiled(windows: Sequence[Window]) -> dict[int, int]:
    """One text window of eight; of few windows more."""
    text = [i for i, window in enumerate(windows) if window.stimulus == TEXT.name]
    every = max(1, min(AT_ONCE // PROFILES, len(text) // 4))
    return {i: rank for rank, i in enumerate(text[::every][:PROFILES])}
