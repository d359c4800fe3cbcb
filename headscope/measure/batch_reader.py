"""Reads one batch: prepared, run, and summed up by the readers of every layer.

`attention_readers` lists the readers. Each asks for parts of the pattern (`requests`), is called
with these rows of every layer while the engine runs (`on_rows`), and later adds its sums to the
tally of the run (`add_to`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from jaxtyping import Int
from torch import Tensor

from headscope.causal.direct_paths import DirectPaths, direct_paths
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
from headscope.measure.preference_reader import preference_reader
from headscope.measure.profile import profile_reader
from headscope.measure.sums import BatchSums
from headscope.models.engines.engine import Tile
from headscope.models.model import Model
from headscope.models.stream import batch_tokens_on
from headscope.relations.effects import effects_among
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import KeptPairs, WindowPairs


def attention_readers(
    batch: Batch, window_pairs: Sequence[WindowPairs], tiles: Sequence[Tile], config: ReaderConfig
) -> list[MakeReader]:
    """Makers of the readers of attention, of a model's or of given patterns.

    These read cells, hard queries, profiles and pictures.

    Args:
        batch: some windows.
        window_pairs: the pairs of each of them.
        tiles: all rows of its patterns.
        config: the relations, and the form of the rows.
    """
    makers = [
        cell_reader(batch, window_pairs, tiles, config),
        preference_reader(batch, window_pairs, tiles, config),
        profile_reader(batch, tiles, config),
        picture_reader(batch, tiles, config),
    ]
    return [make for make in makers if make is not None]


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """A batch that is ready to run."""

    batch: Batch
    tokens: Int[Tensor, "window position"]
    tiles: Sequence[Tile]
    """All rows of its patterns, in the parts in which the engine gives them."""
    attention: Sequence[MakeReader]
    """Make its readers of attention."""
    effects: Callable[[], EffectReader] | None
    """Makes the reader of direct effects; None if no query of the batch measures them."""


class BatchReader:
    """Prepares and reads batches by one model.

    Args:
        model: of any engine.
        relations: what is summed.
        seed: draws the controls.
        batch_tokens: tokens of a batch, padding included. Default: as the device takes them.
        pairs: pairs of windows that were found before; each is given up when its window is read.
    """

    def __init__(
        self,
        model: Model,
        relations: Sequence[Relation],
        seed: int,
        batch_tokens: int | None = None,
        pairs: KeptPairs | None = None,
    ) -> None:
        self.model, self.relations, self.seed = model, relations, seed
        self.pairs = pairs or KeptPairs()
        self.batch_tokens = batch_tokens or batch_tokens_on(model.device)
        # on a processor's cores the model and its next batch would be in each other's way
        self.prepares_ahead = model.device != "cpu"
        self.config = ReaderConfig(
            relations,
            seed,
            model.layers,
            model.heads,
            logarithms=model.engine.logarithms,
            sinks=getattr(model.engine, "sinks", False),
            device=model.device,
        )
        self.effects = effects_among(relations)

    @cached_property
    def paths(self) -> DirectPaths | None:
        """Direct paths of heads to the logits; None if effects are not measured or unknown."""
        return direct_paths(self.model) if self.effects else None

    def prepare(self, batch: Batch) -> PreparedBatch:
        """A batch with its cells found and drawn, on the model's device."""
        tokens = batch.tokens()
        tiles = self.model.engine.layout(*tokens.shape)
        window_pairs = [self.pairs.pop(window) for window in batch.windows]
        makers = attention_readers(batch, window_pairs, tiles, self.config)
        # what heads write is read only where the model's paths are known and a query asks for it
        effects = None
        if self.paths is not None:
            queries = effect_queries(batch, window_pairs, self.effects, seed=self.seed)
            if queries is not None:
                logarithms = self.config.logarithms
                effects = partial(
                    EffectReader, self.paths, queries, self.effects, logarithms=logarithms
                )
        tokens = tokens.to(self.model.device)
        return PreparedBatch(batch, tokens, tiles, makers, effects)

    def read(self, prepared: PreparedBatch, sample: Sample) -> BatchSums:
        """Run a batch; if it does not fit into memory, its halves.

        Args:
            prepared: the batch.
            sample: the patterns of one of its windows that runs alone are kept.

        Raises:
            ModelError: a window does not fit into memory.
        """
        model = self.model
        numbers = list(model.attention_layers)

        def run(batch: Batch) -> list[LayerReader]:
            # halves have other cells than the whole
            ready = prepared if batch is prepared.batch else self.prepare(batch)
            # readers of attention, of examples, and of what heads write
            readers = [make() for make in ready.attention]
            windows = ready.batch.windows
            # patterns for examples are kept of a window that runs alone, as it does when read again
            if len(windows) == 1:
                patterns = sample.begin(windows[0], model.heads * model.layers)
                if patterns is not None:
                    readers.append(PatternReader(patterns, ready.tiles, model))
            effects = None if ready.effects is None else ready.effects()
            if effects is not None:
                readers.append(effects)
            # what several readers ask for is read once
            shared = shared_requests(readers)
            requests = [entry.request for entry in shared]

            def on_layer(layer: int, rows: Iterable[Any]) -> None:
                read_layer(numbers.index(layer), shared, rows)

            with nullcontext() if effects is None else effects.watching():
                model.engine.run(ready.tokens, requests, on_layer, on=effects is not None)
            return readers

        # readers add to a tally later, as a run may break off at any layer
        parts = in_memory(prepared.batch, run)
        readers = [reader for part in parts for reader in part]
        return BatchSums(prepared.batch, readers, was_halved=len(parts) > 1)
