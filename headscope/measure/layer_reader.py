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

    def on_rows(self, layer: int, index: int, rows: Any) -> None:
        """Add up a layer's attention at one request.

        Args:
            layer: counts the layers that are read.
            index: the request's place in `requests`. Calls for a layer come in this order.
            rows: the attention there. It must be as before when the call ends, since another
                reader may have the same rows.
        """

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


@dataclass(frozen=True, eq=False)
class Receiver:
    """A reader that receives the rows of one of its requests."""

    reader: LayerReader
    index: int
    """The request's place among those of the reader."""


@dataclass(frozen=True, eq=False)
class SharedRequest:
    """A request that is read once, and the readers that asked for it or for an equal one."""

    request: Request
    receivers: list[Receiver]


def shared_requests(readers: Sequence[LayerReader]) -> list[SharedRequest]:
    """Requests with their readers; equal tiles are read once, and each reader keeps its order."""
    shared: list[SharedRequest] = []
    for reader in readers:
        start = 0
        for index, request in enumerate(reader.requests):
            # an equal request of another reader, behind those that this reader has had
            later = range(start, len(shared))
            equal = (number for number in later if shared[number].request == request)
            at = next(equal, len(shared))
            if at == len(shared):
                shared.append(SharedRequest(request, []))
            shared[at].receivers.append(Receiver(reader, index))
            start = at + 1
    return shared


@torch.inference_mode()
def read_layer(layer: int, shared: Sequence[SharedRequest], rows: Iterable[Any]) -> None:
    """Hand a layer's rows, in the order of the requests, to their readers."""
    for request, values in zip(shared, rows, strict=True):
        for receiver in request.receivers:
            receiver.reader.on_rows(layer, receiver.index, values)
