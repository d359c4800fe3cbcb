"""Changes of a model's attention while it runs: heads ablated, scaled or set.

Two places can be changed: the attention of a layer, which turns queries, keys and values into each
head's output z (`AttentionChange`); and z itself, just before W_O (`OutputChange`). A study with a
change of its own derives it from one of these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.models.engines.attention import AttentionCall, Output, overridden
from headscope.models.layout.projections import outputs_by_layer
from headscope.models.model import Model

if TYPE_CHECKING:
    from headscope.causal.rerun import CleanRun

HeadPatterns = Float[Tensor, "window _ query key"]
"""Patterns of the replaced heads of a layer in order, or one for all of them; a row sums to 1."""
HeadOutputs = Float[Tensor, "window position head width"]
"""z: each head's mean of values weighted by its attention, as W_O reads it."""


class Intervention(ABC):
    """A change of a model that runs under the fused engine."""

    @property
    @abstractmethod
    def layers(self) -> frozenset[int]:
        """Numbers of the layers that it changes; layers below the lowest run unchanged."""

    @abstractmethod
    def applied(self, model: Model) -> AbstractContextManager[None]:
        """Change the model within this context."""


class AttentionChange(Intervention):
    """Another attention in some layers."""

    @abstractmethod
    def attend(self, call: AttentionCall) -> Output:
        """The output of a layer's attention; `call.output()` is the layer's own."""

    def applied(self, model: Model) -> AbstractContextManager[None]:
        """Change the model within this context."""
        engine: Any = model.engine

        def attend(call: AttentionCall) -> Output:
            return self.attend(call) if call.layer in self.layers else call.output()

        return overridden(engine.network, attend)


@dataclass(frozen=True, eq=False)
class AttentionRead(AttentionChange):
    """The attention as it is; each layer's call is handed on."""

    numbers: Collection[int]
    take: Callable[[AttentionCall], None]

    @property
    def layers(self) -> frozenset[int]:
        """The layers that are read."""
        return frozenset(self.numbers)

    def attend(self, call: AttentionCall) -> Output:
        """The layer's unchanged output."""
        self.take(call)
        return call.output()


@dataclass(frozen=True, eq=False)
class Replacement(AttentionChange):
    """Heads that attend by patterns from elsewhere.

    The pattern of a layer is computed when the layer is reached, so that it may depend on the
    changed residual stream. Layouts with grouped query heads are supported: each replaced head
    reads the values of its own group.
    """

    heads: Mapping[int, Sequence[int]]
    """Replaced heads by layer."""
    pattern: Callable[[AttentionCall], HeadPatterns]
    """Patterns of the replaced heads of the layer that is called, for the batch that runs."""

    @property
    def layers(self) -> frozenset[int]:
        """Numbers of the layers with replaced heads."""
        return frozenset(self.heads)

    def attend(self, call: AttentionCall) -> Output:
        """Values weighted by the patterns; other heads of the layer attend by their own."""
        replaced = list(self.heads[call.layer])
        heads = call.query.shape[1]
        group_size = heads // call.value.shape[1]
        group_of_replaced = [head // group_size for head in replaced]
        values = call.value[:, group_of_replaced]
        pattern = self.pattern(call).to(values)
        mixed = (pattern @ values).transpose(1, 2)
        # the layer's own attention runs only for heads that keep it
        if replaced == list(range(heads)):
            return mixed.contiguous()
        output = call.output()
        output[:, :, replaced] = mixed
        return output


class OutputChange(Intervention):
    """Other outputs z of heads, in some layers."""

    @abstractmethod
    def edit(self, layer: int, z: HeadOutputs) -> HeadOutputs:
        """The outputs that W_O reads instead; `z` itself is not written to."""

    @contextmanager
    def applied(self, model: Model) -> Iterator[None]:
        """Change the model within this context."""
        engine: Any = model.engine
        outputs = outputs_by_layer(engine.network)
        with ExitStack() as hooks:
            for layer in sorted(self.layers):

                def edit(
                    _: nn.Module, arguments: tuple[Tensor, ...], layer: int = layer
                ) -> tuple[Tensor, ...]:
                    z = by_head(arguments[0], model.heads)
                    return self.edit(layer, z).flatten(2), *arguments[1:]

                hooks.enter_context(outputs[layer].register_forward_pre_hook(edit))
            yield


@dataclass(frozen=True, eq=False)
class HeadsScaled(OutputChange):
    """Each head's z times a number: 1 leaves a head as it is, 0 takes it away."""

    factors: Mapping[int, Float[Tensor, "*window head"]]
    """Numbers by layer, and by window if they have that axis; it must then fit the batch."""

    @classmethod
    def by_row(cls, model: Model, factors: Float[Tensor, "layer *window head"]) -> HeadsScaled:
        """Factors of all heads, a row for each layer that has heads, in order."""
        return cls(dict(zip(model.attention_layers, factors, strict=True)))

    @property
    def layers(self) -> frozenset[int]:
        """Layers with factors."""
        return frozenset(self.factors)

    def edit(self, layer: int, z: HeadOutputs) -> HeadOutputs:
        """Every position and every entry of a head's z has the head's number."""
        return z * self.factors[layer][..., None, :, None].to(z)


@dataclass(frozen=True, eq=False)
class HeadsSet(OutputChange):
    """Some heads' z set to other values, such as zero or their mean."""

    heads: Mapping[int, Sequence[int]]
    """Heads by layer."""
    values: Mapping[int, Float[Tensor, ...]]
    """Values of these heads by layer, in any shape that fits `window position head width`."""

    @property
    def layers(self) -> frozenset[int]:
        """Layers with such heads."""
        return frozenset(self.heads)

    def edit(self, layer: int, z: HeadOutputs) -> HeadOutputs:
        """The outputs with these heads set."""
        changed = z.clone()
        changed[:, :, list(self.heads[layer])] = self.values[layer]
        return changed


@dataclass(frozen=True, eq=False)
class RowHeadsSet(OutputChange):
    """Output z of one head of each row set to values."""

    layer: int
    heads: Sequence[int] | Int[Tensor, " row"]
    """Head of each row."""
    values: Float[Tensor, "row position width"]

    @property
    def layers(self) -> frozenset[int]:
        """The one layer."""
        return frozenset({self.layer})

    def edit(self, layer: int, z: HeadOutputs) -> HeadOutputs:
        """The outputs with one head of each row set."""
        changed = z.clone()
        rows = torch.arange(len(z), device=z.device)
        changed[rows, :, self.heads] = self.values.to(z)
        return changed


def ablated(method: str, clean: CleanRun, heads: Mapping[int, Sequence[int]]) -> HeadsSet:
    """The intervention that ablates heads.

    Args:
        method: `zero` or `mean`: each head's mean over the clean run's tokens, without padding
            and the first token of each row.
        clean: the untouched run.
        heads: by layer, which heads.
    """
    counted = clean.rows.after_first()[:, :, None, None]
    values = {}
    for layer, numbers in heads.items():
        z = clean.z[layer][:, :, list(numbers)]
        if method == "zero":
            values[layer] = torch.zeros_like(z)
        else:
            values[layer] = (z * counted).sum((0, 1)) / counted.sum().clamp(min=1)
    return HeadsSet(heads, values)


def by_head(z: Float[Tensor, "window position _"], heads: int) -> HeadOutputs:
    """Heads' outputs, which W_O reads side by side, head by head."""
    return z.view(*z.shape[:2], heads, -1)


def softmax_over_visible(
    logits: Float[Tensor, "_ head query key"], visible: Bool[Tensor, "_ _ query key"]
) -> Float[Tensor, "window head query key"]:
    """Patterns of logits over the keys that each query sees; 0 for a query that sees no key.

    Args:
        logits: one table for all windows if the first axis is 1.
        visible: see `AttentionCall.visible`.

    >>> logits = torch.zeros(1, 1, 2, 2)
    >>> softmax_over_visible(logits, torch.ones(1, 1, 2, 2, dtype=torch.bool).tril())[0, 0]
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    hidden = logits.masked_fill(~visible, -torch.inf)
    return hidden.softmax(-1).nan_to_num(0.0)
