"""Windows to tallies: dealt into blocks, run in batches, summed from the rows of every layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headscope.ahead import ahead
from headscope.batches import Batch
from headscope.corpus.window import Window
from headscope.memory import in_memory
from headscope.reading import Found, Prepared, read_batch
from headscope.relations.relation import Relation
from headscope.schedule import Choose, Step, schedule
from headscope.selection import select
from headscope.tally import Pass, Tally

if TYPE_CHECKING:
    from headscope.models import Model

Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Setting:
    """What every batch is read with."""

    model: Model
    relations: Sequence[Relation]
    seed: int

    def start(self) -> Pass:
        """A reading that has not begun."""
        names = tuple(relation.id for relation in self.relations)
        return Pass(Tally.zeros(names, self.model.layers, self.model.heads))

    def prepare(self, batch: Batch) -> Prepared:
        """A batch with its cells found and drawn, on the model's device."""
        device, tokens = self.model.device, batch.tokens()
        blocks = self.model.engine.layout(*tokens.shape)
        selection = select(batch, self.relations, blocks, heads=self.model.heads, seed=self.seed)
        return Prepared(batch, tokens.to(device), blocks, selection and selection.to(device))


def measure(
    model: Model,
    text: Iterable[Window],
    synthetic: Sequence[Window],
    relations: Sequence[Relation],
    *,
    seed: int,
    batch_tokens: int,
    share: Choose = lambda windows: set(),
    progress: Progress = lambda tokens: None,
    so_far: Pass | None = None,
    keep: Callable[[], None] = lambda: None,
) -> tuple[Tally, list[Prepared]]:
    """Run the model once over all windows and sum up what the relations ask about.

    While an accelerator runs a batch, the next one is read from the corpus, tokenised and searched
    for pairs. A batch that does not fit into memory is read in halves.

    Args:
        model: the model to run.
        text: windows of natural text, one after the other; they need not fit into memory.
        synthetic: windows of the other stimuli.
        relations: the rows of the table to score.
        seed: seeds the control draws.
        batch_tokens: tokens of one forward pass; bounds memory.
        share: says which of the next windows are to be read again; their batches are kept.
        progress: called after each batch with its number of tokens, padding left out.
        so_far: an earlier reading of the same windows that was broken off. Its batches are passed
            over, and those that follow are added to it.
        keep: called when the sums of a batch have been added to `so_far`.

    Returns:
        The sums, and the batches to read again.

    Raises:
        ModelError: a window does not fit into memory.
    """
    setting = Setting(model, relations, seed)
    done = so_far or setting.start()
    kept: list[Prepared] = []
    steps = schedule(text, synthetic, batch_tokens=batch_tokens, share=share)
    coming = _prepare(setting, steps, done.batches)
    # on a processor's cores the model and its next batch would only be in each other's way
    for number, (step, ready) in enumerate(coming if model.device == "cpu" else ahead(coming)):
        if number >= done.batches and ready is not None:
            if step.halves:
                done.tally.halve()
            _read(setting, ready, done)
            keep()
        if step.shared and ready is not None:
            kept.append(ready)
        progress(sum(map(len, step.batch.windows)))
    return done.tally, kept


def measure_again(
    model: Model,
    kept: Iterable[Prepared],
    relations: Sequence[Relation],
    *,
    seed: int,
    progress: Progress = lambda tokens: None,
    so_far: Pass | None = None,
    keep: Callable[[], None] = lambda: None,
) -> Tally:
    """Run batches again that `measure` kept; the model may have other weights by now.

    Args:
        model: the model to run.
        kept: the batches.
        relations: the relations that they were prepared for.
        seed: the seed that they were prepared with.
        progress: see `measure`.
        so_far: see `measure`.
        keep: see `measure`.

    Raises:
        ModelError: a window does not fit into memory.
    """
    setting = Setting(model, relations, seed)
    done = so_far or setting.start()
    for number, prepared in enumerate(kept):
        if number >= done.batches:
            _read(setting, prepared, done)
            keep()
        progress(sum(map(len, prepared.batch.windows)))
    return done.tally


def _prepare(
    setting: Setting, steps: Iterable[Step], done: int
) -> Iterator[tuple[Step, Prepared | None]]:
    """Each batch in its turn; one whose sums are there already is prepared only for the twin."""
    for number, step in enumerate(steps):
        wanted = step.shared or number >= done
        yield step, setting.prepare(step.batch) if wanted else None


def _read(setting: Setting, prepared: Prepared, done: Pass) -> None:
    """Run a batch and add its sums."""

    def read(batch: Batch) -> Found:
        # halves have other cells than the whole
        own = prepared if batch is prepared.batch else setting.prepare(batch)
        return read_batch(setting.model, own)

    parts = in_memory(prepared.batch, read)
    for part in parts:
        part.add_to(done.tally)
    done.batches += 1
    done.tokens += sum(map(len, prepared.batch.windows))
    done.halved += len(parts) > 1
