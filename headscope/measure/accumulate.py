"""One batch, read by a model: what its layers' rows add to the tally."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headscope.measure.batches import Batch
from headscope.measure.profile import ProfileRows
from headscope.measure.selection import Selection, Sums
from headscope.measure.tally import Profile, Tally
from headscope.models.engines.engine import Rows, Tile

if TYPE_CHECKING:
    from headscope.models.load import Model


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch that is ready to run: its tokens, its cells, and where its rows come in tiles."""

    batch: Batch
    tokens: Int[Tensor, "window position"]
    tiles: list[Tile]
    selection: Selection | None


@dataclass(frozen=True, eq=False)
class BatchSums:
    """What a batch adds to the tally."""

    selection: Selection | None
    layers: dict[int, Sums]
    profile: Profile | None

    def add_to(self, tally: Tally) -> None:
        """Add all of it."""
        if self.selection is not None:
            add_counts(tally, self.selection)
            for layer, sums in self.layers.items():
                add_sums(tally, self.selection, layer, sums)
        if self.profile is not None:
            tally.profile += self.profile


def read_batch(model: Model, prepared: Prepared) -> BatchSums:
    """Run a batch; nothing is added to any tally yet, as a run may break off at any layer."""
    batch, selection = prepared.batch, prepared.selection
    profile = Profile.zeros(model.layers, model.heads) if batch.profiled else None
    found = BatchSums(selection, {}, profile)

    def on_layer(layer: int, rows: Iterable[Rows]) -> None:
        sums = layer_sums(
            batch,
            selection,
            profile,
            layer,
            zip(prepared.tiles, rows, strict=True),
            logarithms=model.engine.logarithms,
        )
        if sums is not None:
            found.layers[layer] = sums

    model.engine.run(prepared.tokens, prepared.tiles, on_layer)
    return found


def add_counts(tally: Tally, selection: Selection) -> None:
    """Add what does not depend on heads: queries, chance and the simple rules' right answers."""
    place = (selection.block, selection.relation)
    np.add.at(tally.queries, place, selection.queries)
    np.add.at(tally.chance, place, selection.chance)
    np.add.at(tally.baselines, selection.relation, selection.baselines)


def add_sums(tally: Tally, selection: Selection, layer: int, sums: Sums) -> None:
    """Add what one layer's rows showed."""
    # the rows of a selection are distinct, so plain indexing adds each of them once
    tally.target[selection.block, selection.relation, layer] += sums.target
    tally.control[selection.block, selection.relation, layer] += sums.control
    tally.hits[selection.block, selection.relation, layer] += sums.hits


@torch.inference_mode()
def layer_sums(
    batch: Batch,
    selection: Selection | None,
    profile: Profile | None,
    layer: int,
    rows: Iterable[tuple[Tile, Rows]],
    *,
    logarithms: bool,
) -> Sums | None:
    """One layer's rows on one batch, summed tile by tile; its profile is added to `profile`."""
    profiled = (
        None if profile is None else ProfileRows(profile, batch, layer, logarithms=logarithms)
    )
    parts: list[tuple[Tensor, Tensor]] = []
    for number, (tile, own) in enumerate(rows):
        if selection is not None:
            parts.append(selection.parts[number].to(own.device).sums(own, logarithms=logarithms))
        if profiled is not None:
            profiled.add(tile, own)
    return None if selection is None else selection.sums(parts)
