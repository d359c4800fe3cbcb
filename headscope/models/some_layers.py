"""A loaded model of which some layers are read, and none after the last of them is run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from headscope.models.engines.engine import Engine, OnLayer, Request, Tile
from headscope.models.load import Model


class SomeLayers:
    """An engine that hands on some layers alone, and stops after the last of them.

    Args:
        engine: the engine of the whole model.
        numbers: of the layers in the model.
    """

    def __init__(self, engine: Engine, numbers: Collection[int]) -> None:
        self.engine, self.numbers = engine, frozenset(numbers)
        self.name, self.logarithms = engine.name, engine.logarithms
        self.attention_kind, self.layers = engine.attention_kind, len(self.numbers)

    def __getattr__(self, name: str) -> Any:
        """Attributes of the engine, such as its network."""
        return getattr(self.engine, name)

    def layout(self, windows: int, length: int) -> list[Tile]:
        """The tiles of the engine."""
        return self.engine.layout(windows, length)

    def run(
        self,
        tokens: Int[Tensor, "window position"],
        tiles: Sequence[Request],
        on_layer: OnLayer,
        layers: int | None = None,
        *,
        on: bool = False,
    ) -> None:
        """Run tokens and hand on what the layers show; see `Engine.run`."""
        last = max(n for n in self.numbers if layers is None or n < layers)

        def take(layer: int, rows: Iterable[Any]) -> None:
            if layer in self.numbers:
                on_layer(layer, rows)

        self.engine.run(tokens, tiles, take, last + 1, on=on)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Matrices of all layers: the output of later ones is not read."""
        return self.engine.matrices()


def with_some_layers(model: Model, numbers: Collection[int]) -> Model:
    """The model, of which these layers alone are read.

    Args:
        model: a model with one kind of attention.
        numbers: of layers with softmax attention, at least one.
    """
    others = set(range(model.layers + len(model.others))) - set(numbers)
    return replace(
        model,
        engine=SomeLayers(model.engine, numbers),
        layers=len(set(numbers)),
        others=tuple(sorted(others)),
    )
