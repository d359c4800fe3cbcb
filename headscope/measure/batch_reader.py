"""Batches to sums: prepared, run, and added up from the rows of every layer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jaxtyping import Int
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch, in_memory
from headscope.measure.cell_reader import CellReader
from headscope.measure.effect_queries import EffectQueries, effect_queries
from headscope.measure.layer_reader import LayerReader, read_layer, shared_requests
from headscope.measure.logit_effects import EffectReader
from headscope.measure.mean_pattern import PictureReader, picture_cells
from headscope.measure.plan import BatchResult, Plan, Step, read_plan
from headscope.measure.profile import ProfileReader, profiled_tiles
from headscope.measure.sample_patterns import PatternReader, SamplePatterns
from headscope.measure.selection import Selection, select
from headscope.measure.sink_columns import late_tiles
from headscope.measure.tally import ReadState, Tally
from headscope.models.direct_paths import DirectPaths, known_paths
from headscope.models.engines.engine import Tile
from headscope.relations.effect import Effect, effects_among, of_attention, sum_names
from headscope.relations.relation import Relation

if TYPE_CHECKING:
    from headscope.models.load import Model


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """A batch that is ready to run: its cells, and what else is read of each layer."""

    batch: Batch
    tokens: Int[Tensor, "window position"]
    late: Sequence[Tile]
    """Rows of late queries."""
    selection: Selection | None
    profiled: Sequence[Tile]
    """Rows that are profiled."""
    effects: EffectQueries | None = None
    """Queries at which direct effects of heads are read."""


def attention_readers(
    prepared: PreparedBatch, layers: int, heads: int, *, logarithms: bool, sinks: bool = False
) -> list[LayerReader]:
    """Readers of a batch's cells, profiles and pictures.

    Args:
        prepared: the batch.
        layers: number of layers that are read.
        heads: of a layer.
        logarithms: whether rows come as logarithms of probabilities.
        sinks: whether heads have a learned sink.
    """
    batch, shape = prepared.batch, (layers, heads)
    readers: list[LayerReader] = [
        CellReader(batch, prepared.late, prepared.selection, logarithms=logarithms)
    ]
    if batch.profiled:
        readers.append(
            ProfileReader(batch, prepared.profiled, shape, logarithms=logarithms, sinks=sinks)
        )
    if pictures := picture_cells(batch.windows):
        readers.append(PictureReader(pictures, shape, logarithms=logarithms))
    return readers


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
        effects = None
        if self.paths is not None:
            effects = effect_queries(batch, self.effects, seed=self.seed)
        return PreparedBatch(
            batch,
            tokens.to(device),
            late_tiles(batch.windows),
            selection and selection.to(device),
            profiled_tiles(batch, tiles, heads=self.model.heads),
            effects and effects.to(device),
        )

    def read(
        self, step: Step, prepared: PreparedBatch, sample_patterns: SamplePatterns | None = None
    ) -> BatchResult:
        """Run a batch; where it does not fit into memory, its halves.

        Raises:
            ModelError: a window does not fit into memory.
        """

        def run(batch: Batch) -> list[LayerReader]:
            # halves have other cells than the whole
            ready = prepared if batch is prepared.batch else self.prepare(batch)
            return self._run(ready, sample_patterns)

        parts = in_memory(prepared.batch, run)

        def add_to(tally: Tally) -> None:
            for readers in parts:
                for reader in readers:
                    reader.add_to(tally)

        return BatchResult(step, add_to, len(parts) > 1)

    def _run(
        self, prepared: PreparedBatch, sample_patterns: SamplePatterns | None
    ) -> list[LayerReader]:
        """Run a batch; its readers add to a tally later, as a run may break off at any layer."""
        model, batch, selection = self.model, prepared.batch, prepared.selection
        logarithms = model.engine.logarithms
        readers = attention_readers(
            prepared,
            model.layers,
            model.heads,
            logarithms=logarithms,
            sinks=getattr(model.engine, "sinks", False),
        )
        numbers = list(model.attention_layers)
        if sample_patterns is not None and len(batch.windows) == 1 and selection is not None:
            patterns = sample_patterns.begin(batch.windows[0], model.heads * len(numbers))
            if patterns is not None:
                tiles = [tile for tile in selection.requests if isinstance(tile, Tile)]
                readers.append(PatternReader(patterns, tiles, numbers, logarithms=logarithms))
        effects = None
        if self.paths is not None and prepared.effects is not None:
            effects = EffectReader(
                self.paths, prepared.effects, self.effects, logarithms=logarithms
            )
            readers.append(effects)
        shared = shared_requests(readers)
        requests = [request for request, _ in shared]

        def on_layer(layer: int, rows: Iterable[Any]) -> None:
            read_layer(numbers.index(layer), shared, rows)

        if effects is None:
            model.engine.run(prepared.tokens, requests, on_layer)
        else:
            with effects.watching():
                model.engine.run(prepared.tokens, requests, on_layer, on=True)
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
