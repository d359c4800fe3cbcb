"""The plan of a run's reading, and the one loop that reads it.

Steps go out in order and their sums come back in order, so that an interrupted run resumes
from the last sums that were kept, wherever its model is held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.batches import Batch, Chunk, batches, chunks
from headscope.measure.example_reader import Sample
from headscope.measure.tally import MIN_BLOCKS, ReadState, StoppedEarly, Tally
from headscope.progress import Count, silent
from headscope.relations import all_stimuli
from headscope.relations.relation import (
    EASY,
    HARD,
    MATCHED_CONTROL,
    SELF,
    Relation,
    part_name,
)
from headscope.stimuli.natural_text import TEXT


@dataclass(frozen=True, eq=False)
class Step:
    """A batch in its place among all batches of a run."""

    batch: Batch
    merge: Int[ndarray, " block"] | None
    """Merge of the blocks of the sums so far before this batch's are added, if any."""

    @property
    def tokens(self) -> int:
        """Number of tokens, padding left out."""
        return sum(map(len, self.batch.windows))


def split(text: Iterable[Window], interim_tokens: Sequence[int]) -> Iterator[Iterator[Window]]:
    """A text in rounds that end after so many tokens each, counted from its beginning.

    >>> import numpy as np
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

    >>> import numpy as np
    >>> [round_of(Window("", np.arange(3), ("a",) * 3, stimulus="repeat", document=i))
    ...  for i in (0, 7, 8, 15, 16, 63)]
    [0, 0, 1, 1, 2, 4]
    """
    row, document = all_stimuli()[window.stimulus], max(0, window.document)
    if row.build is None:
        return 1
    return 0 if document < row.before_text else 1 + document // ROUND_DOCUMENTS


@runtime_checkable
class EarlyStopping(Protocol):
    """Decides after each round of reading which stimuli are read no further."""

    @property
    def interim_tokens(self) -> Sequence[int]:
        """Tokens of text after which a round of reading ends; the last round goes to the end."""

    def should_stop(self, tally: Tally, number: int) -> Mapping[str, float]:
        """The stimuli that are read no further, each with the tags that the rest would change.

        It must depend on nothing but the sums and the number: after a kill it is called again.
        """


@dataclass(frozen=True, eq=False)
class Plan:
    """Windows that an opened model is to read, and its sums so far."""

    text: Iterable[Window]
    """Windows of natural text, one after the other; they need not fit into memory."""
    others: Sequence[Window]
    """Windows of the other stimuli."""
    relations: Sequence[Relation]
    """Relations with their parts; the sums of effects stand behind those of the others."""
    seed: int
    model: ReadState
    """The model's sums so far; all further sums are added to them."""
    save_checkpoint: Callable[[], None] = lambda: None
    """Called when sums have been added."""
    listener: Count = field(default_factory=lambda: Count(silent, 0))
    stopping: EarlyStopping | None = None
    """None: all is read in one round."""
    sample: Sample | None = None
    """Windows whose patterns are kept as they are read; None without examples."""
    stimulus_tokens: Counter[str] = field(default_factory=Counter)
    """Tokens that the model has read of each stimulus, those of an earlier process included."""

    @property
    def without_text(self) -> set[str]:
        """Names of the sums that are of other stimuli alone, whose blocks are never merged."""
        others = [r.id for r in self.relations if TEXT.name not in r.stimuli]
        return {
            *others,
            *(
                part_name(name, part)
                for name in others
                for part in (MATCHED_CONTROL, SELF, HARD, EASY)
            ),
        }

    def rounds(self) -> Iterator[tuple[Iterable[Window], Sequence[Window]]]:
        """Text and other windows of each round, without stimuli that were stopped before it."""
        if self.stopping is None:
            yield self.text, self.others
            return
        text = split(self.text, self.stopping.interim_tokens)
        count = max([len(self.stopping.interim_tokens) + 1, *map(round_of, self.others)]) + 1
        stopped = self.model.stopped
        for number in range(count):
            due = [w for w in self.others if round_of(w) == number and was_read(w, stopped)]
            goes_on = TEXT.name not in stopped or number < stopped[TEXT.name].rounds
            # before the first of it come a few documents of other stimuli
            yield next(text, iter(())) if number and goes_on else (), due


def was_read(window: Window, stopped: Mapping[str, StoppedEarly]) -> bool:
    """True if a window of another stimulus than text was read before that was stopped."""
    return window.stimulus not in stopped or round_of(window) < stopped[window.stimulus].rounds


class BatchResult(NamedTuple):
    """The sums of a batch."""

    step: Step
    add_to: Callable[[Tally], None]
    halved: bool
    """True if it did not fit into memory as it was."""


ReadSteps = Callable[[Iterable[Step]], Iterable[BatchResult]]
"""Reads steps by the model, and gives their sums in the same order."""


def read_plan(plan: Plan, read: ReadSteps, *, batch_tokens: int) -> None:
    """Read what is not done yet."""
    planned = 0

    def unread(steps: Iterable[Step], read_before: int) -> Iterator[Step]:
        nonlocal planned
        for step in steps:
            planned += 1
            for window in step.batch.windows:
                plan.stimulus_tokens[window.stimulus] += len(window)
            if planned <= read_before:
                plan.listener.of_model(step.tokens)
            else:
                yield step

    read_before = plan.model.batches
    for number, steps in enumerate(_steps_of_rounds(plan, batch_tokens)):
        _add(plan, read(unread(steps, read_before)))
        # with more batches than planned so far an interrupted run resumed here
        if planned == plan.model.batches:
            _stop_stimuli(plan, number)


def _steps_of_rounds(plan: Plan, batch_tokens: int) -> Iterator[Iterator[Step]]:
    """The batches of a run in order; each round must be taken before the next."""

    def steps(chunks_of_round: Iterable[Chunk]) -> Iterator[Step]:
        for chunk in chunks_of_round:
            windows, merge = chunk.windows.windows, chunk.merge
            rows = range(len(windows))
            alone = [i for i in rows if plan.sample and plan.sample.wants(windows[i])]
            together = [i for i in rows if i not in alone]
            for group in (together, *([i] for i in alone)):
                for batch in batches(chunk.windows.take(group), tokens=batch_tokens):
                    yield Step(batch, merge)
                    merge = None

    for chunks_of_round in chunks(plan.rounds()):
        yield steps(chunks_of_round)


def _stop_stimuli(plan: Plan, number: int) -> None:
    """Ask after a round which stimuli are read no further."""
    if plan.stopping is None:
        return
    stopped = plan.model.stopped
    for stimulus, changes in plan.stopping.should_stop(plan.model.tally, number).items():
        stopped.setdefault(stimulus, StoppedEarly(number + 1, changes))
        windows = [w for w in plan.others if w.stimulus == stimulus]
        plan.listener.leaves_out(sum(len(w) for w in windows if not was_read(w, stopped)))


def _add(plan: Plan, results: Iterable[BatchResult]) -> None:
    state = plan.model
    for result in results:
        if result.step.merge is not None:
            state.tally.merge(result.step.merge, plan.without_text)
        result.add_to(state.tally)
        state.batches += 1
        state.tokens += result.step.tokens
        state.halved += result.halved
        plan.save_checkpoint()
        plan.listener.of_model(result.step.tokens)
