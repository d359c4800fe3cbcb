"""A reader of batches without a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headscope.measure.batches import Batch
from headscope.measure.sums import BatchSums
from headscope.measure.tally import Tally


@dataclass
class CountingReader:
    """Adds to the tally what a function counts in each batch."""

    count: Callable[[Tally, Batch], None]
    batch_tokens: int
    prepares_ahead: bool = False

    def prepare(self, batch: Batch) -> Any:
        return Prepared(batch)

    def read(self, prepared: Any, sample: Any) -> BatchSums:
        return BatchSums(prepared.batch, [Counted(self.count, prepared.batch)])


@dataclass
class Prepared:
    batch: Batch


@dataclass
class Counted:
    """The reader of one batch's layers, as `LayerReader` asks."""

    count: Callable[[Tally, Batch], None]
    batch: Batch
    requests = ()

    def on_rows(self, layer: int, index: int, rows: Any) -> None:
        raise NotImplementedError

    def add_to(self, tally: Tally) -> None:
        self.count(tally, self.batch)
