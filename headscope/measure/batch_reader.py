"""Batches to sums: prepared, run, and added up by the readers of every layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from jaxtyping import Int
from torch import Tensor

from headscope.causal.direct_paths import DirectPaths, direct_paths
from headscope.corpus.window import Window
from headscope.measure.batches import Batch, in_memory
from headscope.measure.cell_reader import cell_reader
from headscope.measure.effect_queries import effect_queries
from headscope.measure.example_reader import PatternReader, Sample
from headscope.measure.layer_reader import (
    LayerReader,
    MakeReader,
    ReaderConfig,
    read_layer,
    shared_requests,
)
from headscope.measure.logit_effects import EffectReader
from headscope.measure.mean_pattern import picture_reader
from headscope.measure.plan import BatchResult, Plan, Step, read_plan
from headscope.measure.preference_reader import preference_reader
from headscope.measure.profile import profile_reader
from headscope.measure.tally import ReadState, Tally
from headscope.models.engines.engine import Tile
from headscope.relations.effects import Effect, effects_among, sum_names
from headscope.relations.relation import Relation

if TYPE_CHECKING:
    from headscope.models.model import Model

READERS = (cell_reader, preference_reader, profile_reader, picture_reader)
"""Readers of attention, of a model's or of given patterns; None if a batch has nothing to read."""


def attention_readers(
    batch: Batch, tiles: Sequence[Tile], config: ReaderConfig
) -> list[MakeReader]:
    """Readers of a batch's cells, profiles and pictures."""
    makers = (reader(batch, tiles, config) for reader in READERS)
    return [make for make in makers if make is not None]


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """A batch that is ready to run."""

    batch: Batch
    tokens: Int[Tensor, "window position"]
    tiles: Sequence[Tile]
    """All rows of its patterns, in the parts in which the engine gives them."""
    attention: Sequence[MakeReader]
    effects: Callable[[], EffectReader] | None
    """Reader of direct effects; None if they are not measured, or at no query of the batch."""


@dataclass(frozen=True, eq=False)
class BatchReader:
    """Prepares and reads batches by one model."""

    model: Model
    relations: Sequence[Relation]
    seed: int

    @cached_property
    def config(self) -> ReaderConfig:
        """The relations, and the form of the model's rows."""
        model = self.model
        return ReaderConfig(
            self.relations,
            self.seed,
            model.layers,
            model.heads,
            logarithms=model.engine.logarithms,
            sinks=getattr(model.engine, "sinks", False),
            device=model.device,
        )

    @cached_property
    def effects(self) -> list[Effect]:
        """Relations whose cells are logits."""
        return effects_among(self.relations)

    @cached_property
    def paths(self) -> DirectPaths | None:
        """Direct paths of heads to the logits; None if effects are not measured."""
        return direct_paths(self.model) if self.effects else None

    def prepare(self, batch: Batch) -> PreparedBatch:
        """A batch with its cells found and drawn, on the model's device."""
        device, tokens = self.model.device, batch.tokens()
        tiles = self.model.engine.layout(*tokens.shape)
        readers = attention_readers(batch, tiles, self.config)
        effects = None
        if self.paths is not None and (
            queries := effect_queries(batch, self.effects, seed=self.seed)
        ):
            effects = partial(
                EffectReader,
                self.paths,
                queries,
                self.effects,
                logarithms=self.config.logarithms,
            )
        return PreparedBatch(batch, tokens.to(device), tiles, readers, effects)

    def read(
        self, step: Step, prepared: PreparedBatch, sample: Sample | None = None
    ) -> BatchResult:
        """Run a batch; if it does not fit into memory, its halves.

        Raises:
            ModelError: a window does not fit into memory.
        """

        def run(batch: Batch) -> list[LayerReader]:
            # halves have other cells than the whole
            ready = prepared if batch is prepared.batch else self.prepare(batch)
            return self._run(ready, sample)

        parts = in_memory(prepared.batch, run)

        def add_to(tally: Tally) -> None:
            for readers in parts:
                for reader in readers:
                    reader.add_to(tally)

        return BatchResult(step, add_to, len(parts) > 1)

    def _run(self, prepared: PreparedBatch, sample: Sample | None) -> list[LayerReader]:
        """Run a batch; its readers add to a tally later, as a run may break off at any layer."""
        model, windows = self.model, prepared.batch.windows
        numbers = list(model.attention_layers)
        readers = [make() for make in prepared.attention]
        if sample is not None and len(windows) == 1:
            patterns = sample.begin(windows[0], model.heads * model.layers)
            if patterns is not None:
                readers.append(PatternReader(patterns, prepared.tiles, model))
        effects = None if prepared.effects is None else prepared.effects()
        if effects is not None:
            readers.append(effects)
        shared = shared_requests(readers)

        def on_layer(layer: int, rows: Iterable[Any]) -> None:
            read_layer(numbers.index(layer), shared, rows)

        with nullcontext() if effects is None else effects.watching():
            requests = [request for request, _ in shared]
            model.engine.run(prepared.tokens, requests, on_layer, on=effects is not None)
        return readers


def measure(
    model: Model,
    text: Iterable[Window],
    synthetic: Sequence[Window],
    relations: Sequence[Relation],
    *,
    seed: int,
    batch_tokens: int,
) -> Tally:
    """Run a loaded model once over all windows and sum up the cells of the relations.

    Raises:
        ModelError: a window does not fit into memory.
    """
    state, reader = empty_state(model, relations), BatchReader(model, relations, seed)
    plan = Plan(text, synthetic, relations, seed, state)
    read_plan(
        plan,
        lambda steps: (reader.read(step, reader.prepare(step.batch)) for step in steps),
        batch_tokens=batch_tokens,
    )
    return state.tally


def empty_state(model: Model, relations: Sequence[Relation]) -> ReadState:
    """A reading that has not begun."""
    return ReadState(Tally.zeros(sum_names(relations), model.attention_layers, model.heads))
