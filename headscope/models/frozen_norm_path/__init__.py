"""The direct path: how what a head writes reaches the logits with every norm's scale frozen.

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

from headscope.errors import ModelError, first_line
from headscope.models.engines.engine import StoppedError
from headscope.models.frozen_norm_path.norms import FrozenNorm
from headscope.models.frozen_norm_path.path_modules import PathModules, find_paths
from headscope.models.layout.projections import output_matrix
from headscope.models.model_kinds import REFUSED

OnHeadOutputs = Callable[[int, Float[Tensor, "query head d_value"], Float[Tensor, " query"]], None]
"""Called with a layer, every head's output z at the asked queries, and what a norm behind the
attention multiplies it by there."""
OnStream = Callable[[int, Float[Tensor, "query d_model"]], None]
"""Called with a layer and the residual stream that it reads at the asked queries."""


@dataclass(eq=False)
class PathEnd:
    """The last norm at the end of a forward pass."""

    scale: Float[Tensor, " query"] | None = None
    """What the last norm multiplies the stream by at the asked queries."""


@dataclass(frozen=True, eq=False)
class DirectPaths:
    """The direct path from every head to the logits of a model.

    The logit of a token at a query, before any cap (Gemma 2), is a sum over what heads, MLPs,
    biases and the embedding add to the residual stream, each times the last norm's scale there;
    see `headscope.measure.effect_queries`.
    """

    modules: PathModules
    heads: int

    @property
    def layers(self) -> int:
        """Layers with attention."""
        return len(self.modules.outputs)

    @torch.no_grad()
    def directions(self, tokens: Int[Tensor, " token"]) -> Float[Tensor, "token d_model"]:
        """Each token's unembedding as a direction of the residual stream before the last norm."""
        weight = self.modules.unembedding.weight
        rows = weight[tokens.to(weight.device)].float()
        return self.modules.final_norm.pulled_back(rows) * self.modules.logit_factor

    @torch.no_grad()
    def through_heads(
        self, layer: int, directions: Float[Tensor, "token d_model"]
    ) -> Float[Tensor, "token head d_value"]:
        """The same as directions of each head's output z: through W_O and the norm behind it."""
        post_norm = self.modules.post_norms[layer]
        pulled = directions if post_norm is None else post_norm.pulled_back(directions)
        matrix = output_matrix(self.modules.outputs[layer])
        at_heads = pulled.to(matrix.device) @ matrix.float().T
        return (at_heads * self.modules.residual_factor).view(len(directions), self.heads, -1)

    @contextmanager
    def watching(
        self, queries: Int[Tensor, " query"], take: OnHeadOutputs, stream: OnStream | None = None
    ) -> Iterator[PathEnd]:
        """Within this context a forward pass hands on what heads write, and ends at the last norm.

        Args:
            queries: those that are read, flat as `[window position]`.
            take: gets each layer's z.
            stream: gets what each layer reads, before its z; not asked for when None.
        """
        end, pending = PathEnd(), dict[int, Tensor]()

        def at(values: Tensor) -> Tensor:
            return values.flatten(0, 1).index_select(0, queries.to(values.device))

        def of_z(layer: int) -> Callable[..., None]:
            def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
                z = at(inputs[0]).float()
                z = z.view(len(z), self.heads, -1)
                if self.modules.post_norms[layer] is None:
                    take(layer, z, z.new_ones(len(z)))
                else:
                    pending[layer] = z

            return hook

        def of_norm(layer: int, norm: FrozenNorm) -> Callable[..., None]:
            def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
                take(layer, pending.pop(layer), norm.scale(at(inputs[0]), at(output)))

            return hook

        def of_stream(layer: int, read: OnStream) -> Callable[..., None]:
            def hook(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
                read(layer, at(inputs[0] if inputs else options["hidden_states"]))

            return hook

        def of_end(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            end.scale = self.modules.final_norm.scale(at(inputs[0]), at(output))
            raise StoppedError

        with ExitStack() as hooks:
            for layer, output in enumerate(self.modules.outputs):
                hooks.enter_context(output.register_forward_pre_hook(of_z(layer)))
                norm = self.modules.post_norms[layer]
                if norm is not None:
                    hooks.enter_context(norm.module.register_forward_hook(of_norm(layer, norm)))
                if stream is not None:
                    block = self.modules.blocks[layer]
                    hook = of_stream(layer, stream)
                    hooks.enter_context(block.register_forward_pre_hook(hook, with_kwargs=True))
            hooks.enter_context(self.modules.final_norm.module.register_forward_hook(of_end))
            yield end


def direct_paths(model: Any) -> DirectPaths:
    """The direct paths of a loaded model.

    Args:
        model: a `headscope.models.load.Model`.

    Raises:
        ModelError: what its heads write does not reach the logits as headscope knows it.
    """
    if not model.attention_kind.predicts_next:
        raise ModelError(f"{model.name}: {REFUSED['classify --writes']}")
    try:
        modules = find_paths(model.engine)
    except ModelError as error:
        raise ModelError(f"{model.name}: what its heads write cannot be read: {error}") from error
    except Exception as error:  # a model's own code may fail in any way
        reason = first_line(error)
        raise ModelError(f"{model.name}: what its heads write cannot be read: {reason}") from error
    return DirectPaths(modules, model.heads)


def known_paths(model: Any) -> DirectPaths | None:
    """The direct paths of a loaded model, found once; None where they are not known."""
    if model.engine not in _known:
        try:
            _known[model.engine] = direct_paths(model)
        except ModelError:
            _known[model.engine] = None
    return _known[model.engine]


_known: WeakKeyDictionary[Any, DirectPaths | None] = WeakKeyDictionary()
