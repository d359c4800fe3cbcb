"""What W_O's mixing is worth: the loss when heads' outputs are no longer mixed by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.models.engines.modules import by_number
from headscope.models.matrices import output_projection

NO_MIXING = "no W_O"


def without_mixing(name: str, network: Any, layers: set[int]) -> AbstractContextManager[None]:
    """A context within which W_O of these layers is a block-diagonal identity; see `unmixed`."""
    attention = by_number(network)
    return unmixed(name, [output_projection(attention[layer]) for layer in sorted(layers)])


@contextmanager
def unmixed(name: str, outputs: Sequence[nn.Module]) -> Iterator[None]:
    """Within this context these output projections hand on z as it is, with their bias.

    Raises:
        ModelError: z is not as wide as the residual stream.
    """

    def hand_on(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        z = inputs[0]
        if z.shape != output.shape:
            raise ModelError(
                f"{name}: its heads have {z.shape[-1]} numbers together and the residual stream "
                f"{output.shape[-1]}, so that W_O cannot be an identity"
            )
        return z if module.bias is None else z + module.bias

    with ExitStack() as hooks:
        for output in outputs:
            hooks.callback(output.register_forward_hook(hand_on).remove)
        yield
