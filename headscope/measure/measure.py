"""Batches to sums: prepared, run, and added up from the rows of every layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headscope.corpus.window import Window
from headscope.measure.accumulate import BatchSums, PreparedBatch, read_batch
from headscope.measure.batches import Batch, in_memory
from headscope.measure.effect_queries import EffectQueries, effect_queries
from headscope.measure.logit_effects import LogitEffectReader
from headscope.measure.plan import BatchResult, Plan, read_plan
from headscope.measure.profile import profiled_tiles
from headscope.measure.sample_patterns import SamplePatterns
from headscope.measure.schedule import Step
from headscope.measure.selection import select
from headscope.measure.sink_columns import late_tiles
from headscope.measure.tally import ReadState, Tally
from headscope.models.direct_paths import DirectPaths, known_paths
from headscope.relations.effect import Effect, effects_among, of_attention, sum_names
from headscope.relations.relation import Relation

if TYPE_CHECKING:
    from headscope.models.load import Model


@dataclass(frozen=True, eq=False)
class BatchReader:
    """Prepares and reads batches by one model."""

    model: Model
    relations: Sequence[Relation]
    seed: int

    @cached_property
    def attention(self) -> list[Relation]:
        """Relations whose cells are attention."""
        return of_attention(self.relations)

    @cached_property
    def effects(self) -> list[Effect]:
        """Relations whose cells are logits."""
        return effects_among(self.relations)

    @cached_property
    def paths(self) -> DirectPaths | None:
        """The heads' direct paths to the logits; None where effects are not measured or unknown."""
        return known_paths(self.model) if self.effects else None

    def prepare(self, batch: Batch) -> PreparedBatch:
        """A batch with its cells found and drawn, on the model's device."""
        device, tokens = self.model.device, batch.tokens()
        tiles = self.model.engine.layout(*tokens.shape)
        selection = select(batch, self.attention, tiles, heads=self.model.heads, seed=self.seed)
        return PreparedBatch(
            batch,
            tokens.to(device),
            late_tiles(batch.windows),
            selection and selection.to(device),
            profiled_tiles(batch, tiles, heads=self.model.heads),
            self._effect_queries(batch),
        )

    def _effect_queries(self, batch: Batch) -> EffectQueries | None:
        queries = (
            None if self.paths is None else effect_queries(batch, self.effects, seed=self.seed)
        )
        return queries and queries.to(self.model.device)

    def read(
        self, step: Step, prepared: PreparedBatch, sample_patterns: SamplePatterns | None = None
    ) -> BatchResult:
        """Run a batch; where it does not fit into memory, its halves.

        Raises:
            ModelError: a window does not fit into memory.
        """

        def run(batch: Batch) -> BatchSums:
            # halves have other cells than the whole
            ready = prepared if batch is prepared.batch else self.prepare(batch)
            effect_reader = None
            if self.paths is not None and ready.effects is not None:
                effect_reader = LogitEffectReader(self.paths, ready.effects, self.effects)
            patterns = None
            if (
                sample_patterns is not None
                and len(batch.windows) == 1
                and ready.selection is not None
            ):
                heads = self.model.heads * len(self.model.attention_layers)
                patterns = sample_patterns.begin(batch.windows[0], heads)
            return read_batch(self.model, ready, effect_reader, patterns)

        parts = in_memory(prepared.batch, run)

        def add_to(tally: Tally) -> None:
            for part in parts:
                part.add_to(tally)

        return BatchResult([step], add_to, int(len(parts) > 1))


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

    Raises:
        ModelError: a window does not fit into memory.
    """
    state, reader = empty_state(model, relations), BatchReader(model, relations, seed)
    plan = Plan(text, synthetic, relations, seed, state)
    read_plan(
        plan,
        lambda steps, twin: (reader.read(step, reader.prepare(step.batch)) for step in steps),
        batch_tokens=batch_tokens,
    )
    return state.tally


def empty_state(model: Model, relations: Sequence[Relation]) -> ReadState:
    """A reading that has not begun."""
    return ReadState(Tally.zeros(sum_names(relations), model.attention_layers, model.heads))
