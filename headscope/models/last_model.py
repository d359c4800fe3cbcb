"""The model that was opened last: asked for again, it is not loaded again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headscope.models.load import open_model
from headscope.models.model import NARROW, Model, narrowed
from headscope.models.plain_network import plain_network_of


class LastModel:
    """Opens models, one at a time, and keeps the last of them."""

    heads: Collection[tuple[int, int]] = ()
    """Layer and number of the only heads whose layers are read and that have examples, if any."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._opened: tuple[Any, dict[str, Any]] | None = None
        self._is_narrowed = False

    def open(self, model: Any, **options: Any) -> Model:
        """The model; see `headscope.models.load.open_model`."""
        # what is in memory may have changed since it was opened
        if self._model is None or not isinstance(model, str) or self._opened != (model, options):
            # two models need not fit into memory; one that was narrowed was opened here, and a run
            # that chooses its precision still holds it
            if self._is_narrowed and self._model is not None:
                plain_network_of(self._model).to_empty(device="meta")
            self._model, self._opened, self._is_narrowed = None, None, False
            self._model = open_model(model, **options)
            self._opened = (model, options)
        return self._with_layers_of_heads(self._model)

    def narrow(self) -> Model:
        """The opened model in half precision, in place; see `headscope.models.model.narrowed`."""
        if self._model is None or self._opened is None:
            raise RuntimeError("open comes first")
        self._model = narrowed(self._model)
        self._is_narrowed = True
        name, options = self._opened
        self._opened = name, {**options, "dtype": NARROW}
        return self._with_layers_of_heads(self._model)

    def _with_layers_of_heads(self, model: Model) -> Model:
        return model.with_layers({layer for layer, _ in self.heads}) if self.heads else model
