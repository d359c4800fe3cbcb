"""Gradients by activations: the weights are frozen, so that few activations are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def frozen_weights(network: Any) -> Iterator[None]:
    """Take no gradients by weights within this context; fewer activations are kept then."""
    trainable = [weight for weight in network.parameters() if weight.requires_grad]
    for weight in trainable:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in trainable:
            weight.requires_grad_(True)
