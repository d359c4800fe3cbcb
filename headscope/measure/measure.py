"""Batches to sums: prepared, run, and added up from the rows of every layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headscope.corpus.window import Window
from headscope.measure.accumulate import BatchSums, Prepared, read_batch
from headscope.measure.batches import Batch
from headscope.measure.effect_names import effect_names
from headscope.measure.effects import Asked, ask
from headscope.measure.memory import in_memory
from headscope.measure.plan import Part, Plan, read_plan
from headscope.measure.profile import profiled_tiles
from headscope.measure.resting import late_tiles
from headscope.measure.schedule import Step
from headscope.measure.selection import select
from headscope.measure.tally import Pass, Tally
from headscope.measure.turned import turned
from headscope.measure.written import Written
from headscope.models.direct.paths import DirectPaths, known_paths
from headscope.relations.relation import Relation
from headscope.relations.writes.effect import Effect

if TYPE_CHECKING:
    from headscope.models.load import Model


@dataclass(frozen=True, eq=False)
class Setting:
    """What every batch is read with."""

    model: Model
    relations: Sequence[Relation]
    seed: int
    effects: Sequence[Effect] = ()

    @cached_property
    def paths(self) -> DirectPaths | None:
        """How what heads write reaches the logits; None where that is not asked or not known."""
        return known_paths(self.model) if self.effects else None

    def prepare(self, batch: Batch) -> Prepared:
        """A batch with its cells found and drawn, on the model's device."""
        device, tokens = self.model.device, batch.tokens()
        tiles = self.model.engine.layout(*tokens.shape)
        selection = select(batch, self.relations, tiles, heads=self.model.heads, seed=self.seed)
        return Prepared(
            batch,
            tokens.to(device),
            late_tiles(batch.windows),
            selection and selection.to(device),
            profiled_tiles(batch, tiles, heads=self.model.heads),
            self._asked(batch),
        )

    def _asked(self, batch: Batch) -> Asked | None:
        found = None if self.paths is None else ask(batch, self.effects, seed=self.seed)
        return found and found.to(self.model.device)

    def read(self, step: Step, prepared: Prepared) -> Part:
        """Run a batch; where it does not fit into memory, its halves.

        Raises:
            ModelError: a window does not fit into memory.
        """

        def run(batch: Batch) -> BatchSums:
            # halves have other cells than the whole
            own = prepared if batch is prepared.batch else self.prepare(batch)
            written = None
            if self.paths is not None and own.effects is not None:
                written = Written(self.paths, own.effects, self.effects)
            sums = read_batch(self.model, own, written)
            if self.paths is None:
                return sums
            return replace(sums, turned=turned(self.model, self.paths, batch, self.effects))

        found = in_memory(prepared.batch, run)

        def add_to(tally: Tally) -> None:
            for each in found:
                each.add_to(tally)

        return Part([step], add_to, int(len(found) > 1))


def measure(
    model: Model,
    text: Iterable[Window],
    synthetic: Sequence[Window],
    relations: Sequence[Relation],
    *,
    seed: int,
    batch_tokens: int,
) -> Tally:
    """Run a loaded model once over all windows and sum up what the relations ask about.

    Args:
        model: the model to run.
        text: windows of natural text, one after the other; they need not fit into memory.
        synthetic: windows of the other stimuli.
        relations: the rows of the table to score.
        seed: seeds the control draws.
        batch_tokens: tokens of one forward pass; bounds memory.

    Raises:
        ModelError: a window does not fit into memory.
    """
    done, setting = empty_pass(model, relations), Setting(model, relations, seed)
    plan = Plan(text, synthetic, relations, seed, done)
    read_plan(
        plan,
        lambda steps, twin: (setting.read(step, setting.prepare(step.batch)) for step in steps),
        batch_tokens=batch_tokens,
    )
    return done.tally


def empty_pass(model: Model, relations: Sequence[Relation], effects: Sequence[Effect] = ()) -> Pass:
    """A reading that has not begun."""
    names = (*(relation.id for relation in relations), *effect_names(effects))
    return Pass(Tally.zeros(names, model.attention_layers, model.heads))
