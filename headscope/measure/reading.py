"""The one loop that reads: rounds, batches, sums, checkpoints, and early stopping.

A `BatchReader` runs the model on a batch, and the readers that it gives back add what they have
summed up to the run's `Tally` (`Sums.add`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol, TypeVar, runtime_checkable

from headscope.corpus.window import Window
from headscope.measure.batch_reader import BatchReader, PreparedBatch
from headscope.measure.batches import AT_ONCE, Batch, TextBlocks, assign_blocks, batches
from headscope.measure.example_reader import Sample
from headscope.measure.rounds import EarlyStopping, Rounds, was_read
from headscope.measure.sums import BatchSums, StoppedEarly, Sums
from headscope.measure.tally import Tally
from headscope.models.model import Model
from headscope.progress import Count, silent
from headscope.relations.relation import Relation

T = TypeVar("T")
_END = object()


@runtime_checkable
class ReadsBatches(Protocol):
    """Reads batches of windows; see `headscope.measure.batch_reader.BatchReader`."""

    batch_tokens: int
    """Tokens of a batch, padding included."""
    prepares_ahead: bool
    """True if the next batch is prepared on another thread while one is read."""

    def prepare(self, batch: Batch) -> PreparedBatch:
        """A batch that is ready to run."""

    def read(self, prepared: PreparedBatch, sample: Sample) -> BatchSums:
        """Run a batch, and keep the patterns of a window of the sample."""


def read(
    reader: ReadsBatches,
    text: Iterable[Window],
    others: Sequence[Window],
    sums: Sums,
    *,
    stopping: EarlyStopping | None = None,
    keep: Callable[[], None] = lambda: None,
    listener: Count | None = None,
) -> None:
    """Read windows batch by batch, and add what they show to the sums.

    A resumed run comes with the sums that its earlier process kept. All windows are cut and dealt
    into batches again, in the same order. Batches that are in the sums are passed over, so that
    this loop reads again no more than what was read since the last checkpoint.
    `headscope.runs.checkpoint` lists what a resumed run does again outside of this loop.

    Args:
        reader: reads the batches.
        text: windows of natural text, one after the other; they need not fit into memory.
        others: windows of the other stimuli.
        sums: the sums so far, to which the new ones are added.
        stopping: decides after each round what is read no further. None: all is read in one round.
        keep: called after each batch that was added; it may write a checkpoint.
        listener: is told of the tokens that are done.

    Raises:
        ModelError: a window does not fit into memory.
    """
    listener = listener or Count(silent, 0)
    rounds = Rounds(text, others, stopping)
    blocks = TextBlocks()
    done_before = sums.batches
    passed = 0
    for number in range(len(rounds)):
        round_batches = _batches_of_round(rounds, number, blocks, sums, reader.batch_tokens)
        # batches in the checkpoint were read by an earlier process
        for batch in islice(round_batches, max(0, done_before - passed)):
            passed += 1
            sums.count(batch)
            listener.of_model(batch.token_count)
        # the next batch is prepared while this one is read
        ready = map(reader.prepare, round_batches)
        for prepared in prefetched(ready) if reader.prepares_ahead else ready:
            batch_sums = reader.read(prepared, sums.sample)
            passed += 1
            sums.add(batch_sums)
            keep()
            listener.of_model(prepared.batch.token_count)
        # if more batches are in the sums, an earlier process has decided on this round
        if stopping is not None and passed == sums.batches:
            changes_by_stimulus = stopping.should_stop(sums.tally, number, sums.stopped)
            for stimulus, changes in changes_by_stimulus.items():
                sums.stopped[stimulus] = StoppedEarly(number + 1, changes)
                # tokens of the stimulus that are read no further are left out of the progress
                of_stimulus = [window for window in others if window.stimulus == stimulus]
                unread = [window for window in of_stimulus if not was_read(window, sums.stopped)]
                listener.leaves_out(sum(map(len, unread)))


def _batches_of_round(
    rounds: Rounds, number: int, blocks: TextBlocks, sums: Sums, batch_tokens: int
) -> Iterator[Batch]:
    """The batches of a round: text as it comes, some windows at a time, then other stimuli."""
    text = rounds.text(number, sums.stopped)
    while windows := list(islice(text, AT_ONCE)):
        sums.see(windows)
        yield from _batches_of(blocks.deal(windows), sums, batch_tokens)
    others = rounds.others(number, sums.stopped)
    if others:
        yield from _batches_of(assign_blocks(others), sums, batch_tokens)


def _batches_of(dealt: Batch, sums: Sums, batch_tokens: int) -> Iterator[Batch]:
    """Batches of windows; a window whose patterns are kept runs alone. The first one merges."""
    rows = range(len(dealt.windows))
    alone = [row for row in rows if sums.sample.wants(dealt.windows[row])]
    together = [row for row in rows if row not in alone]
    merge = dealt.merge
    for group in (together, *([row] for row in alone)):
        for batch in batches(dealt.take(group), tokens=batch_tokens):
            yield batch if merge is None else batch.merging(merge)
            merge = None


def prefetched(items: Iterator[T]) -> Iterator[T]:
    """The same items, each made on another thread while the one before it is used.

    Errors come out in their order.
    """
    with ThreadPoolExecutor(1) as pool:
        upcoming = pool.submit(next, items, _END)
        while (item := upcoming.result()) is not _END:
            upcoming = pool.submit(next, items, _END)
            yield item  # type: ignore[misc]


def sum_cells(
    model: Model,
    text: Iterable[Window],
    others: Sequence[Window],
    relations: Sequence[Relation],
    *,
    seed: int,
    batch_tokens: int,
) -> Tally:
    """Run a loaded model once over all windows and sum up the cells of the relations.

    Raises:
        ModelError: a window does not fit into memory.
    """
    sums = Sums.empty(model, relations)
    read(BatchReader(model, relations, seed, batch_tokens), text, others, sums)
    return sums.tally
