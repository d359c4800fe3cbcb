"""Readers of a batch's layers: each adds up what it asks of a layer, in one shared run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from headscope.measure.tally import Tally
from headscope.models.engines.engine import Request


@runtime_checkable
class LayerReader(Protocol):
    """Sums over the layers of one batch."""

    @property
    def requests(self) -> Sequence[Request]:
        """What it reads of each layer, in order."""

    def on_rows(self, layer: int, request: Request, rows: Any) -> None:
        """Add up what a layer shows of a request; layers are numbered among those that are read."""

    def add_to(self, tally: Tally) -> None:
        """Add the sums of all layers to those of a run."""


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
