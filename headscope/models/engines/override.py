"""A network's attention computed by another function, for as long as a context lasts.

The function holds what it needs: nothing is stored in a module of Python, and two networks may each
have another one at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headscope.models.engines import capture
from headscope.models.engines.adapters import attend_by
from headscope.models.engines.engine import Rows
from headscope.models.engines.log_attention import Heads, Keys, ScoreTerms, Seen, pattern, seen_keys

Output = Float[Tensor, "batch position head _"]


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """The arguments with which transformers calls a layer's attention."""

    module: nn.Module
    query: Heads
    key: Keys
    value: Seen
    mask: Tensor | None
    scaling: float | None
    options: dict[str, Any]

    @property
    def layer(self) -> int:
        """The layer's number in the model."""
        layer: Any = self.module.layer_idx
        return int(layer)

    @property
    def scale(self) -> float:
        """The factor of the scores; one over the root of a query's width if none is named."""
        return self.query.shape[-1] ** -0.5 if self.scaling is None else self.scaling

    @cached_property
    def score_terms(self) -> ScoreTerms:
        """Mask, bias, cap and sink of the layer's scores.

        Raises:
            ModelError: the model asks for something else.
        """
        return capture.score_terms(self.module, self.query, self.key, self.mask, self.options)

    @property
    def visible(self) -> Bool[Tensor, "_ _ query key"]:
        """Keys that each query may see; one table for all windows and heads where those are 1."""
        return seen_keys(self.query, self.score_terms)

    def pattern(self) -> Rows:
        """The layer's own patterns; rows sum to 1, or to what a learned sink leaves."""
        return pattern(self.query, self.key, self.scale, self.score_terms)

    def output(self) -> Output:
        """The output of the layer's own attention."""
        arguments = (self.module, self.query, self.key, self.value, self.mask)
        return capture.attention(*arguments, scaling=self.scaling, **self.options)[0]


Attend = Callable[[AttentionCall], Output]
"""Called for every layer; returns what goes on to W_O, or `call.output()` to change nothing."""

_free_names: list[str] = []
_numbers = count()


@contextmanager
def overridden(network: Any, attend: Attend) -> Iterator[None]:
    """Let a network's attention be computed by a function within this context.

    Args:
        network: the network of a fused engine.
        attend: the function.
    """
    name = _free_names.pop() if _free_names else f"{capture.NAME}-override-{next(_numbers)}"
    capture.register_attention(name, _for_transformers(attend))
    try:
        attend_by(network, name)
        yield
    finally:
        attend_by(network, capture.NAME)
        capture.register_attention(name, capture.attention)  # lets go of what the function holds
        _free_names.append(name)


def module_input(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
    """The stream that a block or an attention module reads, however it is handed on."""
    stream: Tensor = arguments[0] if arguments else keywords["hidden_states"]
    return stream


def _for_transformers(attend: Attend) -> Callable[..., tuple[Output, None]]:
    def attention(
        module: nn.Module,
        query: Heads,
        key: Keys,
        value: Seen,
        attention_mask: Tensor | None,
        *,
        scaling: float | None = None,
        **options: Any,
    ) -> tuple[Output, None]:
        arguments = (module, query, key, value, attention_mask, scaling, options)
        return attend(AttentionCall(*arguments)), None

    return attention
