"""What a run reads, and the one loop that reads it: the same for every backend.

Steps go out in order and their sums come back in order, so that a run that was broken off goes on
from the last sums that were kept, wherever its model is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

from headscope.corpus.window import Window
from headscope.measure.schedule import Choose, Step, portion, rounds_of, split
from headscope.measure.tally import Ended, Pass, Tally
from headscope.models.shuffled import Share
from headscope.relations.relation import Relation
from headscope.relations.writes.effect import Effect


@runtime_checkable
class Watch(Protocol):
    """Hears how far a reading is, in tokens without padding."""

    def of_model(self, tokens: int) -> None:
        """The model has read so many more."""

    def twin_begins(self, tokens: int) -> None:
        """The model is done, and its twin is to read so many."""

    def of_twin(self, tokens: int) -> None:
        """The twin has read so many more."""


class _Unwatched:
    """Hears nothing."""

    def of_model(self, tokens: int) -> None:
        """Nothing is done with it."""

    def twin_begins(self, tokens: int) -> None:
        """Nothing is done with it."""

    def of_twin(self, tokens: int) -> None:
        """Nothing is done with it."""


UNWATCHED: Watch = _Unwatched()


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be read of an opened model, and what is done of it."""

    text: Iterable[Window]
    """Windows of natural text, one after the other; they need not fit into memory."""
    synthetic: Sequence[Window]
    """Windows of the other stimuli."""
    relations: Sequence[Relation]
    seed: int
    model: Pass
    """The model's sums so far; those to come are added to them."""
    twin: Pass | None = None
    """The shuffled twin's; None where it is not asked for."""
    keep: Callable[[], None] = lambda: None
    """Called when sums have been added."""
    watch: Watch = UNWATCHED
    looks: Sequence[int] = ()
    """Tokens of text after which a round of reading ends; the last goes to the end."""
    enough: Callable[[Tally, int], Mapping[str, float]] | None = None
    """Given the sums after a round, counted from 0: the stimuli of which no more need be read,
    each with the tags that the rest would change. It must depend on nothing else: after a kill it
    is asked again. None: all is read in one round."""
    effects: Sequence[Effect] = ()
    """What is asked of what heads write; the sums of these stand behind those of the relations."""

    def rounds(self) -> Iterator[tuple[Iterable[Window], Sequence[Window]]]:
        """What is read in each round, as far as its stimuli have not ended by then."""
        if self.enough is None:
            yield self.text, self.synthetic
            return
        text = split(self.text, self.looks)
        count = max([len(self.looks), *map(portion, self.synthetic)]) + 1
        ended = self.model.ended
        for number in range(count):
            beside = [w for w in self.synthetic if portion(w) == number and was_read(w, ended)]
            more = "text" not in ended or number < ended["text"].rounds
            yield next(text, iter(())) if more else (), beside


def was_read(window: Window, ended: Mapping[str, Ended]) -> bool:
    """Whether a window of another stimulus than text was read before its stimulus ended."""
    return window.stimulus not in ended or portion(window) < ended[window.stimulus].rounds


class Part(NamedTuple):
    """The sums of some batches that follow one another."""

    steps: Sequence[Step]
    add_to: Callable[[Tally], None]
    halved: int
    """Those of them that did not fit into memory as they were."""


ReadSteps = Callable[[Iterable[Step], bool], Iterable[Part]]
"""Reads steps by the model, or by its twin if True, and gives their sums in the same order."""


def read_plan(plan: Plan, read: ReadSteps, *, batch_tokens: int) -> None:
    """Read what is not done yet, by the model and then by its twin.

    Args:
        plan: what to read; its sums are added to.
        read: reads steps.
        batch_tokens: tokens of one forward pass.
    """
    share: Choose = Share(seed=plan.seed) if plan.twin is not None else lambda windows: set()
    shared: list[Step] = []
    done, planned = plan.model.batches, 0

    def coming(steps: Iterable[Step]) -> Iterator[Step]:
        nonlocal planned
        for step in steps:
            planned += 1
            if step.shared:
                shared.append(replace(step, opens=None))  # the twin's blocks are never merged
            if planned <= done:
                plan.watch.of_model(step.tokens)
            else:
                yield step

    rounds = rounds_of(plan.rounds(), batch_tokens=batch_tokens, share=share)
    for number, steps in enumerate(rounds):
        _add(read(coming(steps), False), plan.model, plan.watch.of_model, plan.keep)
        # with more batches than planned so far a run that was broken off went on from here
        if plan.enough is not None and planned == plan.model.batches:
            for stimulus, changes in plan.enough(plan.model.tally, number).items():
                plan.model.ended.setdefault(stimulus, Ended(number + 1, changes))
    if plan.twin is not None:
        plan.watch.twin_begins(sum(step.tokens for step in shared))
        left = shared[plan.twin.batches :]
        for step in shared[: plan.twin.batches]:
            plan.watch.of_twin(step.tokens)
        _add(read(left, True), plan.twin, plan.watch.of_twin, plan.keep)


def _add(
    parts: Iterable[Part], to: Pass, tell: Callable[[int], None], keep: Callable[[], None]
) -> None:
    for part in parts:
        merge = part.steps[0].merges
        if merge is not None:
            to.tally.merge(merge)
        part.add_to(to.tally)
        tokens = sum(step.tokens for step in part.steps)
        to.batches += len(part.steps)
        to.tokens += tokens
        to.halved += part.halved
        keep()
        tell(tokens)
