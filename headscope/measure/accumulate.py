"""One batch, read by a model: what its layers' rows add to the tally."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.batches import Batch
from headscope.measure.effects import Asked
from headscope.measure.profile import ProfileRows
from headscope.measure.resting import Resting, find_resting, late_queries
from headscope.measure.selection import Selection, Sums
from headscope.measure.tally import Profile, Tally
from headscope.measure.turned import TurnedSums
from headscope.measure.written import EffectSums, Written
from headscope.models.engines.engine import Look, Read, Tile
from headscope.relations.sink import RESTING

if TYPE_CHECKING:
    from headscope.models.load import Model


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch that is ready to run: its tokens, its cells, and what is read of each layer."""

    batch: Batch
    tokens: Int[Tensor, "window position"]
    late: list[Tile]
    """Rows of late queries, which are read first."""
    selection: Selection | None
    profiled: list[Tile]
    """Rows that are profiled."""
    effects: Asked | None = None
    """What is asked of what heads write."""

    @property
    def cells(self) -> Sequence[Look]:
        """Where the cells of the selection are."""
        return () if self.selection is None else self.selection.looks

    @property
    def looks(self) -> list[Read]:
        """All that is read of a layer, in order; rows with cells are profiled as they come."""
        return [*self.attended, *(() if self.effects is None else self.effects.looks)]

    @property
    def attended(self) -> list[Look]:
        """What is read of a layer's attention for its own sake."""
        return [*self.late, *self.cells, *self.alone]

    @property
    def alone(self) -> list[Tile]:
        """Rows that are profiled and hold no cells."""
        seen = [look for look in self.cells if isinstance(look, Tile)]
        return [tile for tile in self.profiled if tile not in seen]


class LayerSums(NamedTuple):
    """What one layer's rows on a batch showed."""

    cells: Sums | None
    """None where nothing was asked about."""
    resting: Resting


@dataclass(frozen=True, eq=False)
class BatchSums:
    """What a batch adds to the tally."""

    batch: Batch
    selection: Selection | None
    layers: dict[int, LayerSums]
    """By their places among the layers that are read."""
    profile: Profile | None
    effects: EffectSums | None = None
    turned: TurnedSums | None = None
    """What it says of later heads' scores."""

    def add_to(self, tally: Tally) -> None:
        """Add all of it."""
        add_counts(tally, self.batch, self.selection)
        for layer, sums in self.layers.items():
            add_sums(tally, self.batch, self.selection, layer, sums)
        if self.profile is not None:
            tally.profile += self.profile
        if self.effects is not None:
            self.effects.add_to(tally)
        if self.turned is not None:
            self.turned.add_to(tally)


def read_batch(model: Model, prepared: Prepared, written: Written | None = None) -> BatchSums:
    """Run a batch; nothing is added to any tally yet, as a run may break off at any layer.

    Args:
        model: the model to run.
        prepared: the batch.
        written: reads what its heads write, where that is asked.
    """
    batch, selection = prepared.batch, prepared.selection
    looks, attended = prepared.looks, prepared.attended
    profile = Profile.zeros(model.layers, model.heads) if batch.profiled else None
    found = BatchSums(batch, selection, {}, profile)
    place = {layer: row for row, layer in enumerate(model.attention_layers)}

    def on_layer(layer: int, all_rows: Iterable[Any]) -> None:
        rows = iter(all_rows)
        found.layers[place[layer]] = layer_sums(
            prepared,
            profile,
            place[layer],
            zip(attended, islice(rows, len(attended)), strict=False),
            logarithms=model.engine.logarithms,
            sinks=getattr(model.engine, "sinks", False),
        )
        if written is not None:
            for own in rows:
                if isinstance(own, tuple):
                    written.look_at_selves(*own, logarithms=model.engine.logarithms)
                else:
                    written.look(own, logarithms=model.engine.logarithms)

    if written is None:
        model.engine.run(prepared.tokens, looks, on_layer)
        return found
    with written.watching() as end:
        model.engine.run(prepared.tokens, looks, on_layer, on=True)
    return replace(found, effects=written.sums(end))


def add_counts(tally: Tally, batch: Batch, selection: Selection | None) -> None:
    """Add what does not depend on heads: queries and chance."""
    resting = _resting(tally)
    if resting is not None:
        np.add.at(tally.queries[:, resting], batch.blocks, _late_text(batch))
    if selection is None:
        return
    place = (selection.block, selection.relation)
    np.add.at(tally.queries, place, selection.queries)
    np.add.at(tally.chance, place, selection.chance)


def add_sums(
    tally: Tally, batch: Batch, selection: Selection | None, layer: int, found: LayerSums
) -> None:
    """Add what one layer's rows showed; the layer by its place among those that are read."""
    resting = _resting(tally)
    if resting is not None:
        text = (_late_text(batch) > 0)[:, None]
        np.add.at(tally.target[:, resting, layer], batch.blocks, found.resting.mass * text)
        np.add.at(tally.control[:, resting, layer], batch.blocks, found.resting.other * text)
    sums = found.cells
    if selection is None or sums is None:
        return
    # the rows of a selection are distinct, so plain indexing adds each of them once
    tally.target[selection.block, selection.relation, layer] += sums.target
    tally.control[selection.block, selection.relation, layer] += sums.control
    tally.hits[selection.block, selection.relation, layer] += sums.hits


def _resting(tally: Tally) -> int | None:
    return tally.relations.index(RESTING) if RESTING in tally.relations else None


def _late_text(batch: Batch) -> Int[ndarray, " window"]:
    """The queries of each window that count for resting columns."""
    text = [window.stimulus == "text" for window in batch.windows]
    return late_queries(batch.windows) * text


@torch.inference_mode()
def layer_sums(
    prepared: Prepared,
    profile: Profile | None,
    layer: int,
    rows: Iterable[tuple[Look, Any]],
    *,
    logarithms: bool,
    sinks: bool = False,
) -> LayerSums:
    """One layer's rows on one batch, summed tile by tile; its profile is added to `profile`.

    Args:
        prepared: the batch.
        profile: what is known of the heads' patterns so far, where the batch has a part in it.
        layer: its place among the layers that are read.
        rows: each of the batch's looks with what it shows, in order.
        logarithms: whether they are logarithms of probabilities.
        sinks: whether a learned sink may have a share of them.
    """
    batch, selection, coming = prepared.batch, prepared.selection, iter(rows)
    late = ((tile, own) for tile, (_, own) in zip(prepared.late, coming, strict=False))
    resting = find_resting(batch.windows, late, logarithms=logarithms)
    profiled = (
        None
        if profile is None
        else ProfileRows(profile, batch, layer, logarithms=logarithms, sinks=sinks)
    )
    parts: list[tuple[Tensor, Tensor]] = []
    asked = () if selection is None else selection.parts
    for (look, own), part in zip_longest(coming, asked):
        if part is not None:
            found = part.to(own.device).sums(own, resting.of(look), logarithms=logarithms)
            parts.append(found)
        if profiled is not None and look in prepared.profiled:
            profiled.add(look, own)
    return LayerSums(None if selection is None else selection.sums(parts), resting)
