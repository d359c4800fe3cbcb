"""One batch, read by a model: the sums over its layers' rows, for the tally."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.batches import Batch
from headscope.measure.effect_queries import EffectQueries, EffectSums
from headscope.measure.logit_effects import LogitEffectReader
from headscope.measure.mean_pattern import PictureCells, picture_cells
from headscope.measure.profile import ProfileRows
from headscope.measure.sample_patterns import WindowPatterns
from headscope.measure.selection import Selection, Sums
from headscope.measure.sink_columns import SinkColumns, find_sink_columns, late_queries
from headscope.measure.tally import Profile, Tally
from headscope.models.engines.engine import PatternRegion, Request, Tile
from headscope.relations.sink import RESTING
from headscope.stimuli.text import TEXT

if TYPE_CHECKING:
    from headscope.models.load import Model


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """A batch that is ready to run: its tokens, its cells, and what is read of each layer."""

    batch: Batch
    tokens: Int[Tensor, "window position"]
    late_rows: list[Tile]
    """Rows of late queries, which are read first."""
    selection: Selection | None
    profiled_rows: list[Tile]
    """Rows that are profiled."""
    effects: EffectQueries | None = None
    """Queries at which effects of what heads write are read."""

    @property
    def cell_requests(self) -> Sequence[PatternRegion]:
        """Rows and cells that hold the cells of the selection."""
        return () if self.selection is None else self.selection.requests

    @property
    def requests(self) -> list[Request]:
        """All that is read of a layer, in order; rows with cells are profiled as they come."""
        return [*self.attention, *(() if self.effects is None else self.effects.requests)]

    @property
    def attention(self) -> list[PatternRegion]:
        """Rows and cells of a layer's attention that are read for relations and profiles."""
        pictured = (picture.cells for picture in self.pictured)
        return [*self.late_rows, *self.cell_requests, *self.profiled_alone, *pictured]

    @cached_property
    def pictured(self) -> list[PictureCells]:
        """Cells that mean patterns of other stimuli than text are made of."""
        return picture_cells(self.batch.windows)

    @property
    def profiled_alone(self) -> list[Tile]:
        """Rows that are profiled and hold no cells."""
        read = [request for request in self.cell_requests if isinstance(request, Tile)]
        return [tile for tile in self.profiled_rows if tile not in read]


class LayerSums(NamedTuple):
    """Sums over one layer's rows on a batch."""

    cells: Sums | None
    """None where no relation has queries."""
    sinks: SinkColumns


@dataclass(frozen=True, eq=False)
class BatchSums:
    """A batch's part of the tally."""

    batch: Batch
    selection: Selection | None
    layers: dict[int, LayerSums]
    """By their places among the layers that are read."""
    profile: Profile | None
    effects: EffectSums | None = None
    """Effects on logits."""

    def add_to(self, tally: Tally) -> None:
        """Add all of it."""
        add_counts(tally, self.batch, self.selection)
        for layer, sums in self.layers.items():
            add_sums(tally, self.batch, self.selection, layer, sums)
        if self.profile is not None:
            tally.profile += self.profile
        if self.effects is not None:
            self.effects.add_to(tally)


def read_batch(
    model: Model,
    prepared: PreparedBatch,
    effect_reader: LogitEffectReader | None = None,
    patterns: WindowPatterns | None = None,
) -> BatchSums:
    """Run a batch; nothing is added to any tally yet, as a run may break off at any layer."""
    batch, selection = prepared.batch, prepared.selection
    requests, attention = prepared.requests, prepared.attention
    described = batch.profiled or prepared.pictured
    profile = Profile.zeros(model.layers, model.heads) if described else None
    sums = BatchSums(batch, selection, {}, profile)
    row_of = {layer: row for row, layer in enumerate(model.attention_layers)}

    def on_layer(layer: int, all_rows: Iterable[Any]) -> None:
        rows = iter(all_rows)
        attention_rows: Iterable[tuple[PatternRegion, Any]]
        attention_rows = zip(attention, islice(rows, len(attention)), strict=False)
        if patterns is not None:
            attention_rows = _stored(attention_rows, prepared, partial(patterns.add, layer), model)
        sums.layers[row_of[layer]] = layer_sums(
            prepared,
            profile,
            row_of[layer],
            attention_rows,
            logarithms=model.engine.logarithms,
            sinks=getattr(model.engine, "sinks", False),
        )
        if effect_reader is not None:
            for values in rows:
                if isinstance(values, tuple):
                    effect_reader.read_selves(*values, logarithms=model.engine.logarithms)
                else:
                    effect_reader.read_rows(values, logarithms=model.engine.logarithms)

    if effect_reader is None:
        model.engine.run(prepared.tokens, requests, on_layer)
        return sums
    with effect_reader.watching() as end:
        model.engine.run(prepared.tokens, requests, on_layer, on=True)
    return replace(sums, effects=effect_reader.sums(end))


def _stored(
    rows: Iterable[tuple[PatternRegion, Any]],
    prepared: PreparedBatch,
    keep: Callable[..., None],
    model: Model,
) -> Iterator[tuple[PatternRegion, Any]]:
    """The same rows; those with cells, which are all of a short window's, are kept as they pass."""
    first = len(prepared.late_rows)
    with_cells = range(first, first + len(prepared.cell_requests))
    for number, (request, values) in enumerate(rows):
        if number in with_cells:
            keep(request, values, logarithms=model.engine.logarithms)
        yield request, values


def add_counts(tally: Tally, batch: Batch, selection: Selection | None) -> None:
    """Add what does not depend on heads: queries and chance."""
    sink_row = _sink_row(tally)
    if sink_row is not None:
        np.add.at(tally.queries[:, sink_row], batch.blocks, _late_text(batch))
    if selection is None:
        return
    rows = (selection.block, selection.relation)
    np.add.at(tally.queries, rows, selection.queries)
    np.add.at(tally.chance, rows, selection.chance)


def add_sums(
    tally: Tally, batch: Batch, selection: Selection | None, layer: int, sums: LayerSums
) -> None:
    """Add the sums over one layer's rows; the layer by its number among those that are read."""
    sink_row = _sink_row(tally)
    if sink_row is not None:
        text = (_late_text(batch) > 0)[:, None]
        np.add.at(tally.target[:, sink_row, layer], batch.blocks, sums.sinks.mass * text)
        np.add.at(tally.control[:, sink_row, layer], batch.blocks, sums.sinks.other * text)
    cells = sums.cells
    if selection is None or cells is None:
        return
    # the rows of a selection are distinct, so plain indexing adds each of them once
    tally.target[selection.block, selection.relation, layer] += cells.target
    tally.control[selection.block, selection.relation, layer] += cells.control
    tally.hits[selection.block, selection.relation, layer] += cells.hits


def _sink_row(tally: Tally) -> int | None:
    return tally.relations.index(RESTING) if RESTING in tally.relations else None


def _late_text(batch: Batch) -> Int[ndarray, " window"]:
    """The queries of each window that count for sink columns."""
    is_text = [window.stimulus == TEXT.name for window in batch.windows]
    return late_queries(batch.windows) * is_text


@torch.inference_mode()
def layer_sums(
    prepared: PreparedBatch,
    profile: Profile | None,
    layer: int,
    rows: Iterable[tuple[PatternRegion, Any]],
    *,
    logarithms: bool,
    sinks: bool = False,
) -> LayerSums:
    """One layer's rows on one batch, summed tile by tile; its profile is added to `profile`."""
    batch, selection, remaining = prepared.batch, prepared.selection, iter(rows)
    late = (
        (tile, values) for tile, (_, values) in zip(prepared.late_rows, remaining, strict=False)
    )
    sink_columns = find_sink_columns(batch.windows, late, logarithms=logarithms)
    profile_rows = (
        None
        if profile is None
        else ProfileRows(profile, batch, layer, logarithms=logarithms, sinks=sinks)
    )
    pictured = {id(picture.cells): picture for picture in prepared.pictured}
    sums: list[tuple[Tensor, Tensor]] = []
    reductions = () if selection is None else selection.reductions
    for (request, values), reduction in zip_longest(remaining, reductions):
        if reduction is not None:
            columns = sink_columns.of(request)
            sums.append(reduction.to(values.device).sums(values, columns, logarithms=logarithms))
        if profile_rows is not None and request in prepared.profiled_rows:
            profile_rows.add(request, values)
        if profile is not None and id(request) in pictured:
            pictured[id(request)].add(profile, layer, values, logarithms=logarithms)
    return LayerSums(None if selection is None else selection.sums(sums), sink_columns)
