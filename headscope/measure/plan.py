"""What a run reads, and the one loop that reads it: the same for every backend.

Steps go out in order and their sums come back in order, so that a run that was broken off goes on
from the last sums that were kept, wherever its model is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

from headscope.corpus.window import Window
from headscope.measure.schedule import Choose, Step, rounds_of, split
from headscope.measure.tally import Pass, Tally
from headscope.models.shuffled import Share
from headscope.relations.relation import Relation


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
    """Tokens of text after which it is asked whether that was enough."""
    enough: Callable[[Tally, int], bool] = lambda sums, look: False
    """Whether the sums at this look, counted from 0, decide so much that reading may end. It must
    depend on nothing else: after a kill it is asked again."""


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

    text = split(plan.text, plan.looks)
    rounds = rounds_of(text, plan.synthetic, batch_tokens=batch_tokens, share=share)
    for look, steps in enumerate(rounds):
        _add(read(coming(steps), False), plan.model, plan.watch.of_model, plan.keep)
        # with more batches than planned so far a run that was broken off went on from here
        looked = look < len(plan.looks) and planned == plan.model.batches
        if looked and plan.enough(plan.model.tally, look):
            break
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
