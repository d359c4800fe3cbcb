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
    """The requests of all readers in order, each with its readers; equal tiles are read once."""
    shared: list[SharedRequest] = []
    for reader in readers:
        for request in reader.requests:
            for other, others in shared:
                if other == request and reader not in others:
                    others.append(reader)
                    break
            else:
                shared.append((request, [reader]))
    return shared


@torch.inference_mode()
def read_layer(layer: int, shared: Sequence[SharedRequest], rows: Iterable[Any]) -> None:
    """Hand a layer's rows, in the order of the requests, to their readers."""
    for (request, readers), values in zip(shared, rows, strict=True):
        for reader in readers:
            reader.on_rows(layer, request, values)
