"""The worth of W_O's mixing: an intervention by which heads' outputs are not mixed by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headscope.errors import ModelError
from headscope.models.intervention import Intervention
from headscope.models.layout.modules import attention_by_layer
from headscope.models.layout.projections import output_projection
from headscope.models.load import Model


@dataclass(frozen=True)
class Unmixed(Intervention):
    """Output projections that hand on z as it is, with their bias: W_O is an identity."""

    changed: frozenset[int]
    """Numbers of the layers."""

    @property
    def layers(self) -> frozenset[int]:
        """Numbers of the layers."""
        return self.changed

    @contextmanager
    def applied(self, model: Model) -> Iterator[None]:
        """Change the model within this context.

        Raises:
            ModelError: while it runs, if z is not as wide as the residual stream.
        """
        engine: Any = model.engine
        attention = attention_by_layer(engine.network)

        def hand_on(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            z = inputs[0]
            if z.shape != output.shape:
                raise ModelError(
                    f"{model.name}: its heads have {z.shape[-1]} numbers together and the "
                    f"residual stream {output.shape[-1]}, so that W_O cannot be an identity"
                )
            return z if module.bias is None else z + module.bias

        with ExitStack() as hooks:
            for layer in sorted(self.changed):
                module = output_projection(attention[layer])
                hooks.callback(module.register_forward_hook(hand_on).remove)
            yield
