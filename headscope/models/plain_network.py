"""The plain Hugging Face network of a model that runs under the fused engine."""

from __future__ import annotations

from typing import Any

from headscope.errors import ModelError
from headscope.models.engines.fused import FusedEngine
from headscope.models.model import Model


def plain_network_of(model: Model) -> Any:
    """The plain Hugging Face network of a model.

    Raises:
        ModelError: it runs by another engine.
    """
    if not isinstance(model.engine, FusedEngine):
        why = f" ({model.notes[0]})" if model.notes else ""
        raise ModelError(
            f"{model.name}: only the fused engine has the plain Hugging Face network that this "
            f"needs; this model runs under the {model.engine.name} engine{why}"
        )
    return model.engine.network
