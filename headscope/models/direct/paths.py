"""Where what heads write meets the residual stream, and where this meets the unembedding.

Modules have other names in every layout, so that they are found by what they do on a short text:
what a block adds must be what its attention writes, behind a norm where there is one, and the
output of one other module; and the last norm's output, unembedded, must be the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.models.direct.find import Found, find_paths, output_matrix
from headscope.models.direct.norms import FrozenNorm
from headscope.models.engines.engine import StoppedError

Take = Callable[[int, Float[Tensor, "query head d_value"], Float[Tensor, " query"]], None]
"""Called with a layer, every head's output z at the asked queries, and what a norm behind the
attention multiplies it by there."""
TakeStream = Callable[[int, Float[Tensor, "query d_model"]], None]
"""Called with a layer and the residual stream that it reads at the asked queries."""


@dataclass(eq=False)
class End:
    """What is known at the end of a forward pass."""

    scale: Float[Tensor, " query"] | None = None
    """What the last norm multiplies the stream by at the asked queries."""
    stream: Float[Tensor, "query d_model"] | None = None
    """The stream that the last norm reads there."""


@dataclass(frozen=True, eq=False)
class DirectPaths:
    """The direct path from every head to the logits of a model.

    The logit of a token at a query, before any cap (Gemma 2), is a sum over what heads, MLPs,
    biases and the embedding add to the residual stream, each times the last norm's scale there;
    see `headscope.measure.effects`.
    """

    found: Found
    heads: int

    @property
    def layers(self) -> int:
        """Layers with attention."""
        return len(self.found.outputs)

    @torch.no_grad()
    def directions(self, tokens: Int[Tensor, " token"]) -> Float[Tensor, "token d_model"]:
        """Each token's unembedding as a direction of the residual stream before the last norm."""
        weight = self.found.unembedding.weight
        rows = weight[tokens.to(weight.device)].float()
        return self.found.norm.pulled_back(rows) * self.found.times

    @torch.no_grad()
    def through_heads(
        self, layer: int, directions: Float[Tensor, "token d_model"]
    ) -> Float[Tensor, "token head d_value"]:
        """The same as directions of each head's output z: through W_O and the norm behind it."""
        behind = self.found.behind[layer]
        pulled = directions if behind is None else behind.pulled_back(directions)
        matrix = output_matrix(self.found.outputs[layer])
        found = pulled.to(matrix.device) @ matrix.float().T
        return (found * self.found.factor).view(len(directions), self.heads, -1)

    @contextmanager
    def watching(
        self, places: Int[Tensor, " query"], take: Take, stream: TakeStream | None = None
    ) -> Iterator[End]:
        """Within this context a forward pass hands on what heads write, and ends at the last norm.

        Args:
            places: the asked queries, flat as `[window position]`.
            take: gets each layer's z.
            stream: gets what each layer reads, before its z; not asked for when None.
        """
        end, kept = End(), dict[int, Tensor]()

        def at(values: Tensor) -> Tensor:
            return values.flatten(0, 1).index_select(0, places.to(values.device))

        def of_z(layer: int) -> Callable[..., None]:
            def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
                z = at(inputs[0]).float()
                z = z.view(len(z), self.heads, -1)
                if self.found.behind[layer] is None:
                    take(layer, z, z.new_ones(len(z)))
                else:
                    kept[layer] = z

            return hook

        def of_norm(layer: int, norm: FrozenNorm) -> Callable[..., None]:
            def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
                take(layer, kept.pop(layer), norm.scale(at(inputs[0]), at(output)))

            return hook

        def of_stream(layer: int, read: TakeStream) -> Callable[..., None]:
            def hook(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
                read(layer, at(inputs[0] if inputs else named["hidden_states"]))

            return hook

        def of_end(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            end.stream = at(inputs[0]).float()
            end.scale = self.found.norm.scale(end.stream, at(output))
            raise StoppedError

        with ExitStack() as hooks:
            for layer, output in enumerate(self.found.outputs):
                _enter(hooks, output.register_forward_pre_hook(of_z(layer)))
                norm = self.found.behind[layer]
                if norm is not None:
                    _enter(hooks, norm.module.register_forward_hook(of_norm(layer, norm)))
                if stream is not None:
                    block = self.found.blocks[layer]
                    hook = of_stream(layer, stream)
                    _enter(hooks, block.register_forward_pre_hook(hook, with_kwargs=True))
            _enter(hooks, self.found.norm.module.register_forward_hook(of_end))
            yield end


def direct_paths(model: Any) -> DirectPaths:
    """The direct paths of a loaded model.

    Args:
        model: a `headscope.models.load.Model`.

    Raises:
        ModelError: what its heads write does not reach the logits as headscope knows it.
    """
    if model.both_ways:
        raise ModelError(f"{model.name}: an encoder predicts no next token that heads could write")
    try:
        found = find_paths(model.engine)
    except ModelError as error:
        raise ModelError(f"{model.name}: what its heads write cannot be read: {error}") from error
    except Exception as error:  # a model's own code may fail in any way
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ModelError(f"{model.name}: what its heads write cannot be read: {reason}") from error
    return DirectPaths(found, model.heads)


def known_paths(model: Any) -> DirectPaths | None:
    """The direct paths of a loaded model, found once; None where they are not known."""
    if model.engine not in _known:
        try:
            _known[model.engine] = direct_paths(model)
        except ModelError:
            _known[model.engine] = None
    return _known[model.engine]


_known: WeakKeyDictionary[Any, DirectPaths | None] = WeakKeyDictionary()


def _enter(hooks: ExitStack, handle: Any) -> None:
    hooks.callback(handle.remove)
