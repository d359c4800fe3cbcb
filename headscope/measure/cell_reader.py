"""Reader of the cells of the relations in a batch, and of its sink positions.

`headscope.measure.selection.select` gives the cells: targets and controls of each relation. The
reader fills the sums `target`, `control`, `hits`, `queries` and `chance` of a tally.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.batches import Batch
from headscope.measure.layer_reader import MakeReader, ReaderConfig
from headscope.measure.selection import Selection, select
from headscope.measure.sink_positions import (
    LATE,
    SinkPositions,
    find_sink_positions,
    known_columns,
    late_tiles,
)
from headscope.measure.sparse import CellSums
from headscope.measure.tally import Tally, grained
from headscope.models.engines.engine import Request, Rows, Tile
from headscope.relations.relation import SINK_POSITION
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.natural_text import TEXT


class CellReader:
    """Sums of the attention on targets and controls, and of late queries on sink positions."""

    def __init__(
        self,
        batch: Batch,
        selection: Selection | None,
        known_columns: Int[Tensor, "window column"],
        *,
        logarithms: bool,
    ) -> None:
        self._batch = batch
        self._selection = selection
        self._logarithms = logarithms
        # rows late in each window tell where sinks are, before other rows leave them out
        self._late = late_tiles(batch.windows)
        self._parts = () if selection is None else selection.parts
        self.requests: list[Request] = [*self._late, *(part.request for part in self._parts)]
        self._late_rows: list[tuple[Tile, Rows]] = []
        self._known = known_columns
        self._columns = known_columns
        """Columns that are left out of the arg-max of the layer that is read."""
        self._sinks: dict[int, SinkPositions] = {}
        self._sums: dict[int, list[CellSums]] = {}
        """Sums of each part of the selection, by layer."""

    def on_rows(self, layer: int, index: int, rows: Tensor) -> None:
        """Find the sink positions in the late rows, which come first, then add up the cells."""
        if index < len(self._late):
            self._late_rows.append((self._late[index], rows))
            if index + 1 == len(self._late):
                # a layer's sink positions are left out of its arg-max from here on
                sinks = find_sink_positions(
                    self._batch.windows, self._late_rows, logarithms=self._logarithms
                )
                self._sinks[layer] = sinks
                self._columns = torch.cat([sinks.columns, self._known.to(rows.device)], 1)
                self._late_rows = []
        else:
            # the columns of the windows that this part of the selection reads
            part = self._parts[index - len(self._late)]
            request = part.request
            if isinstance(request, Tile):
                windows = request.windows
            else:
                windows = slice(request.window, request.window + 1)
            columns = self._columns[windows].to(rows.device)
            reduction = part.reduction.to(rows.device)
            sums = reduction.sums(rows, columns, logarithms=self._logarithms)
            of_layer = self._sums.setdefault(layer, [])
            of_layer.append(sums)

    def add_to(self, tally: Tally) -> None:
        """Add queries and chance, which do not depend on heads, and each layer's sums."""
        if SINK_POSITION in tally.relations:
            self._add_sinks(tally, tally.relations.index(SINK_POSITION))
        selection = self._selection
        if selection is None:
            return
        # the selection's own numbers, the same for all heads
        rows = (selection.block, selection.relation)
        np.add.at(tally.queries, rows, selection.queries)
        np.add.at(tally.chance, rows, selection.chance)
        if not self._sums:
            return
        # sums over the parts of the selection
        mass_of_layers = []
        hits_of_layers = []
        for parts in self._sums.values():
            mass_of_layers.append(sum((part.mass for part in parts), torch.zeros(())))
            hits_of_layers.append(sum((part.hits for part in parts), torch.zeros(())))
        # all layers come back from the device in one copy
        mass = _grained(torch.stack(mass_of_layers))
        hits = _grained(torch.stack(hits_of_layers))
        count = hits.shape[1]
        # at compared queries the preference for targets, which another reader sums, is in `hits`
        is_compared = selection.is_compared[:, None]
        for number, layer in enumerate(self._sums):
            # the rows of a selection are distinct, so plain indexing adds each of them once
            targets = np.where(is_compared, hits[number], mass[number, :count])
            tally.target[*rows, layer] += targets
            tally.control[*rows, layer] += mass[number, count:]
            tally.hits[*rows, layer] += np.where(is_compared, 0, hits[number])

    def _add_sinks(self, tally: Tally, row: int) -> None:
        """Add the late queries of windows of text, each to the block that it lies in."""
        # the block of each late stretch; windows of other stimuli have no sinks of text
        is_text: list[bool] = []
        blocks: list[int] = []
        for tile in self._late:
            number = tile.windows.start
            stimulus = self._batch.windows[number].stimulus
            is_text.append(stimulus == TEXT.name)
            if stimulus != TEXT.name:
                continue
            last_query = tile.queries.stop - 1
            block_of_query = self._batch.blocks_of_queries(number)
            blocks.append(block_of_query[last_query])
        np.add.at(tally.queries[:, row], blocks, LATE)
        if not self._sinks:
            return
        # targets are the sink positions, controls the other keys
        mass = _grained(torch.stack([sinks.mass for sinks in self._sinks.values()]))
        other = _grained(torch.stack([sinks.other for sinks in self._sinks.values()]))
        for number, layer in enumerate(self._sinks):
            np.add.at(tally.target[:, row, layer], blocks, mass[number, is_text])
            np.add.at(tally.control[:, row, layer], blocks, other[number, is_text])


def _grained(sums: Tensor) -> Float[ndarray, "layer row head"]:
    return grained(sums.cpu().double().numpy())


def cell_reader(
    batch: Batch, window_pairs: Sequence[WindowPairs], tiles: Sequence[Tile], config: ReaderConfig
) -> MakeReader:
    """Maker of the reader of a batch's cells."""
    selection = select(batch, window_pairs, tiles, config)
    known = known_columns(batch.windows).to(config.device)
    return partial(CellReader, batch, selection, known, logarithms=config.logarithms)
