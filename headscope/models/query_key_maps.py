"""A head's queries and keys as linear maps of the residual stream, each norm's scale frozen.

A query is a linear map of what the attention reads, through its projection and its positions
alike, and what the attention reads is one of the stream once the norm's scale is taken from the
run. The map is the Jacobian of the vector at the attention's input, a backward pass for each of its
dimensions; so it holds for rotary and other positions, biases, groups of heads and fused
projections. Norms of queries and keys (Qwen3, Gemma 3) have their scale frozen too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.models.engines.capture import capturing
from headscope.models.engines.engine import StoppedError
from headscope.models.engines.log_attention import Scores
from headscope.models.engines.override import module_input
from headscope.models.engines.probe import only_forward
from headscope.models.frozen_norm_path.norms import FrozenNorm, frozen_norm
from headscope.models.frozen_norm_path.scores import norm_before
from headscope.models.layout.modules import attention_by_layer
from headscope.models.load import Model
from headscope.models.stream import attention_blocks


@dataclass(frozen=True, eq=False)
class StreamMap:
    """Queries, or keys, as `matrix @ stream + offset` at each position."""

    matrix: Float[Tensor, "position d_head d_model"]
    offset: Float[Tensor, "position d_head"]
    """What the biases of norm and projection give, turned by the position."""
    vectors: Float[Tensor, "position d_head"]
    """The model's own."""


@dataclass(frozen=True, eq=False)
class QueryKeyMaps:
    """One head's queries and keys in one window, and the streams that were asked for."""

    query: StreamMap
    key: StreamMap
    scale: float
    """The score of an edge is q·k times this, before a cap and with `bias` added to it."""
    bias: Float[Tensor, "query key"] | None
    """What positions add to scores (ALiBi, T5), −∞ where a query does not look; None: nothing."""
    streams: dict[int, Float[Tensor, "position d_model"]]
    """By layer, the residual stream that its block reads."""


def query_key_maps(
    model: Model,
    tokens: Int[Tensor, " position"],
    head: tuple[int, int],
    layers: Collection[int] = (),
) -> QueryKeyMaps:
    """The maps of one head in one window.

    Args:
        model: a model that runs under the fused engine.
        tokens: of the window.
        head: its layer's number in the model, and its own in the layer.
        layers: earlier layers whose streams are wanted beside the head's own.

    Raises:
        ModelError: what the attention reads is neither the stream nor one norm of it, or the layer
            has no such head.
    """
    layer, number = head
    engine: Any = model.engine
    blocks, attention = attention_blocks(engine.network), attention_by_layer(engine.network)
    state: dict[str, Any] = {"calls": []}
    streams: dict[int, Tensor] = {}

    def store_stream(stored: int) -> Callable[..., None]:
        def hook(_: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
            stream = module_input(arguments, options)
            streams[stored] = stream[0].detach().float().cpu()
            if stored == layer:
                state["stream"] = stream

        return hook

    def store_call(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs and isinstance(output, Tensor) and "leaf" not in state and "stream" in state:
            state["calls"].append((module, inputs[0], output))

    def into(_: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        read = module_input(arguments, options)
        at = torch.zeros(len(tokens), dtype=torch.long), torch.arange(len(tokens))
        state["norm"], state["norm_scale"] = norm_before(state, read, at)
        torch.set_grad_enabled(True)
        state["leaf"] = read.detach().clone().requires_grad_()
        if arguments:
            return (state["leaf"], *arguments[1:]), options
        return arguments, {**options, "hidden_states": state["leaf"]}

    def take(at: int, scores: Scores) -> None:
        if at == layer:
            state["maps"] = _maps_at_input(scores.of_head(number), state["leaf"])
            raise StoppedError

    with ExitStack() as hooks:
        hooks.enter_context(torch.no_grad())
        hooks.enter_context(capturing(take))
        hooks.enter_context(_frozen_inside(attention[layer]))
        for stored in {*layers, layer}:
            hook = blocks[stored].register_forward_pre_hook(store_stream(stored), with_kwargs=True)
            hooks.enter_context(hook)
        for part in blocks[layer].children():
            hooks.enter_context(part.register_forward_hook(store_call))
        hooks.enter_context(attention[layer].register_forward_pre_hook(into, with_kwargs=True))
        try:
            batch = tokens[None].to(model.device)
            engine.network.base_model(batch, **only_forward(engine.dimensions))
        except StoppedError:
            pass
    if "maps" not in state:
        raise ModelError(f"{model.name}: layer {layer} showed no queries and keys")
    query, key, scale, bias = state["maps"]
    norm, norm_scale = state["norm"], state["norm_scale"].float().cpu()
    return QueryKeyMaps(
        _through_norm(query, norm, norm_scale),
        _through_norm(key, norm, norm_scale),
        scale,
        bias,
        streams,
    )


def _maps_at_input(
    scores: Scores, leaf: Tensor
) -> tuple[StreamMap, StreamMap, float, Tensor | None]:
    """Queries and keys as maps of what the attention reads."""
    bias = scores.terms.bias
    return (
        _map_at_input(scores.query[0, 0], leaf),
        _map_at_input(scores.key[0, 0], leaf),
        scores.scale,
        None if bias is None else bias[0, 0].detach().double().cpu(),
    )


def _map_at_input(vectors: Float[Tensor, "position d_head"], leaf: Tensor) -> StreamMap:
    rows = [
        torch.autograd.grad(vectors[:, dimension].sum(), leaf, retain_graph=True)[0][0]
        for dimension in range(vectors.shape[1])
    ]
    matrix = torch.stack([row.float().cpu() for row in rows], 1)
    values = vectors.detach().double().cpu()
    read = leaf[0].detach().double().cpu()
    return StreamMap(matrix, values - torch.einsum("phd,pd->ph", matrix.double(), read), values)


@torch.no_grad()
def _through_norm(side: StreamMap, norm: FrozenNorm | None, scale: Tensor) -> StreamMap:
    """A map of what the attention reads as one of the stream before its norm."""
    if norm is None:
        return side
    offset = side.offset
    if isinstance(norm.bias, Tensor):
        bias = norm.bias.double().cpu()
        offset = offset + torch.einsum("phd,d->ph", side.matrix.double(), bias)
    on_cpu = FrozenNorm(norm.module, norm.gain.float().cpu(), norm.bias, norm.centred)
    matrix = on_cpu.pulled_back(side.matrix) * scale[:, None, None]
    return StreamMap(matrix, offset, side.vectors)


@contextmanager
def _frozen_inside(attention: nn.Module) -> Iterator[None]:
    """Within this context norms inside an attention are linear: their scale is a constant."""
    tried: set[nn.Module] = set()

    def freeze(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Tensor | None:
        if module in tried or not isinstance(output, Tensor):
            return None
        tried.add(module)  # it is called again to see what it does
        norm = frozen_norm(module, inputs[0].detach(), output.detach())
        # autograd stores no tensor of inference mode
        norm = FrozenNorm(module, norm.gain.clone(), norm.bias, norm.centred)
        scale = norm.scale(inputs[0].detach(), output.detach())
        return (norm.linear(inputs[0].float()) * scale[..., None] + norm.bias).to(output.dtype)

    with ExitStack() as hooks:
        for module in attention.modules():
            if module is not attention and "norm" in type(module).__name__.lower():
                hooks.enter_context(module.register_forward_hook(freeze))
        yield
