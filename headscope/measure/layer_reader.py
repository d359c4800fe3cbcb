"""Readers of a batch's layers: each adds up one kind of measurement, in one shared forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from headscope.measure.tally import Tally
from headscope.models.engines.engine import Request
from headscope.relations.relation import Relation


@runtime_checkable
class LayerReader(Protocol):
    """Sums over the layers of one batch."""

    @property
    def requests(self) -> Sequence[Request]:
        """Places of each layer's pattern that are read, in order."""

    def on_rows(self, layer: int, request: Request, rows: Any) -> None:
        """Add up a layer's attention at one request; `layer` counts the layers that are read."""

    def add_to(self, tally: Tally) -> None:
        """Add the sums of all layers to those of a run."""


MakeReader = Callable[[], LayerReader]
"""Makes a reader with empty sums."""


@dataclass(frozen=True, eq=False)
class ReaderConfig:
    """The measured relations, and the form in which a model or another source gives its rows."""

    relations: Sequence[Relation]
    seed: int
    layers: int
    """Number of layers that are read."""
    heads: int
    """Number of heads in a layer."""
    logarithms: bool = False
    """True if rows come as logarithms of probabilities."""
    sinks: bool = False
    """True if heads have a learned sink."""
    device: str = "cpu"


SharedRequest = tuple[Request, list[LayerReader]]


def shared_requests(readers: Sequence[LayerReader]) -> list[SharedRequest]:
    """Requests with their readers; equal tiles are read once, and each reader keeps its order."""
    shared: list[SharedRequest] = []
    for reader in readers:
        start = 0
        for request in reader.requests:
            later = range(start, len(shared))
            at = next((i for i in later if shared[i][0] == request), len(shared))
            if at == len(shared):
                shared.append((request, []))
            shared[at][1].append(reader)
            start = at + 1
    return shared


@torch.inference_mode()
def read_layer(layer: int, shared: Sequence[SharedRequest], rows: Iterable[Any]) -> None:
    """Hand a layer's rows, in the order of the requests, to their readers."""
    for (request, readers), values in zip(shared, rows, strict=True):
        for reader in readers:
            reader.on_rows(layer, request, values)
