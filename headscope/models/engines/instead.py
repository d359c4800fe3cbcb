"""Another attention in the place of a network's own, for as long as a context lasts.

What is done instead is a function of its own, which holds what it needs: nothing is kept in a
module, and two networks may each have another at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from headscope.models.engines import interface
from headscope.models.engines.modules import attend_by
from headscope.models.engines.rows import Beside, Heads, Keys, Seen

Output = Float[Tensor, "batch position head _"]


@dataclass(frozen=True, eq=False)
class Asked:
    """What a layer asks of its attention, as transformers hands it on."""

    module: nn.Module
    query: Heads
    key: Keys
    value: Seen
    mask: Tensor | None
    scaling: float | None
    more: dict[str, Any]

    @property
    def layer(self) -> int:
        """The layer's number in the model."""
        layer: Any = self.module.layer_idx
        return int(layer)

    @property
    def scale(self) -> float:
        """What scores are multiplied by; one over the root of a query's width if none is named."""
        return self.query.shape[-1] ** -0.5 if self.scaling is None else self.scaling

    @cached_property
    def beside(self) -> Beside:
        """What stands beside the scores.

        Raises:
            ModelError: it is none of what `Beside` holds.
        """
        return interface.beside_of(self.module, self.query, self.key, self.mask, self.more)

    def as_ever(self) -> Output:
        """What the layer's own attention gives."""
        given = (self.module, self.query, self.key, self.value, self.mask)
        return interface.attention(*given, scaling=self.scaling, **self.more)[0]


Instead = Callable[[Asked], Output]
"""Called for every layer; it gives what the layer's heads read, or `asked.as_ever()`."""

_free: list[str] = []
_numbers = count()


@contextmanager
def attending(network: Any, instead: Instead) -> Iterator[None]:
    """Within this context a network's attention is what a function gives.

    Args:
        network: the network of a fused engine.
        instead: the function.
    """
    name = _free.pop() if _free else f"{interface.NAME}-instead-{next(_numbers)}"
    interface.register(name, _for_transformers(instead))
    try:
        attend_by(network, name)
        yield
    finally:
        attend_by(network, interface.NAME)
        interface.register(name, interface.attention)  # lets go of what the function holds
        _free.append(name)


def _for_transformers(instead: Instead) -> Callable[..., tuple[Output, None]]:
    def attention(
        module: nn.Module,
        query: Heads,
        key: Keys,
        value: Seen,
        attention_mask: Tensor | None,
        *,
        scaling: float | None = None,
        **more: Any,
    ) -> tuple[Output, None]:
        return instead(Asked(module, query, key, value, attention_mask, scaling, more)), None

    return attention
