"""Names and shapes of the tensors of the empty model that transformers builds."""

from __future__ import annotations

from typing import Any

from headscope.models.checkpoint import Shapes


def empty_shapes(name: str, config: Any) -> Shapes:
    """The shapes that transformers builds for a configuration; no memory is taken.

    Raises:
        ModelError: transformers has no causal language model for it, or cannot build it.
    """
    # importing torch takes seconds, which the list of published shapes does not need
    from headscope.models.weights import empty_network

    return {key: tuple(each.shape) for key, each in empty_network(name, config).named_parameters()}
