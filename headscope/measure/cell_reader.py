"""Reader of the cells that relations ask about in a batch, and of its sink columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from headscope.measure.batches import Batch
from headscope.measure.selection import Selection
from headscope.measure.sink_columns import SinkColumns, find_sink_columns, late_queries
from headscope.measure.tally import Tally
from headscope.models.engines.engine import Request, Rows, Tile
from headscope.relations.sink import RESTING
from headscope.stimuli.text import TEXT


class CellReader:
    """Sums of the attention on targets and controls, and of late queries on sink columns."""

    def __init__(
        self, batch: Batch, late: Sequence[Tile], selection: Selection | None, *, logarithms: bool
    ) -> None:
        self._batch, self._late, self._selection = batch, late, selection
        self._logarithms = logarithms
        cells = () if selection is None else selection.requests
        self.requests: list[Request] = [*late, *cells]
        reductions = () if selection is None else selection.reductions
        self._reductions = dict(zip(map(id, cells), reductions, strict=True))
        self._late_rows: list[tuple[Tile, Rows]] = []
        self._columns = find_sink_columns(batch.windows, [], logarithms=logarithms)
        self._sinks: dict[int, SinkColumns] = {}
        self._values: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def on_rows(self, layer: int, request: Any, rows: Tensor) -> None:
        """Find the sink columns in the late rows, which come first, then add up the cells."""
        if id(request) not in self._reductions:
            self._late_rows.append((request, rows))
            if len(self._late_rows) == len(self._late):
                self._columns = self._sinks[layer] = find_sink_columns(
                    self._batch.windows, self._late_rows, logarithms=self._logarithms
                )
                self._late_rows = []
            return
        reduction = self._reductions[id(request)].to(rows.device)
        sums = reduction.sums(rows, self._columns.of(request), logarithms=self._logarithms)
        self._values.setdefault(layer, []).append(sums)

    def add_to(self, tally: Tally) -> None:
        """Add queries and chance, which do not depend on heads, and each layer's sums."""
        batch, selection = self._batch, self._selection
        if RESTING in tally.relations:
            row = tally.relations.index(RESTING)
            is_text = np.array([window.stimulus == TEXT.name for window in batch.windows])
            late_text = late_queries(batch.windows) * is_text
            np.add.at(tally.queries[:, row], batch.blocks, late_text)
            for layer, sinks in self._sinks.items():
                text = (late_text > 0)[:, None]
                np.add.at(tally.target[:, row, layer], batch.blocks, sinks.mass * text)
                np.add.at(tally.control[:, row, layer], batch.blocks, sinks.other * text)
        if selection is None:
            return
        rows = (selection.block, selection.relation)
        np.add.at(tally.queries, rows, selection.queries)
        np.add.at(tally.chance, rows, selection.chance)
        for layer, values in self._values.items():
            sums = selection.sums(values)
            # the rows of a selection are distinct, so plain indexing adds each of them once
            tally.target[*rows, layer] += sums.target
            tally.control[*rows, layer] += sums.control
            tally.hits[*rows, layer] += sums.hits
