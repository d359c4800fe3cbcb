"""How what heads write at a query changes the scores of later heads' queries there.

A score is q·k times a scale. Of a layer whose queries are a linear map of a normed stream it is
linear in what is added to the stream, once the norm's scale is frozen; its direction is the
gradient at the attention's input, through rotary positions and projection alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.models.direct.norms import FrozenNorm, frozen_norm
from headscope.models.direct.paths import DirectPaths
from headscope.models.engines.interface import reading
from headscope.models.engines.modules import attention_layers
from headscope.models.engines.probe import only_forward
from headscope.models.engines.rows import Scores

TRIED = 8
"""Tokens of the text on which it is tried."""


class Places(NamedTuple):
    """Where scores are asked for: of each window a query, and weights of keys for each side."""

    query: Int[Tensor, " window"]
    names: Float[Tensor, "window key"]
    """1 at keys whose share of attention says how much a head counts."""
    read: Float[Tensor, "window key"]
    """1 where what heads read counts apart."""
    sides: Float[Tensor, "side window key"]
    """Weights of keys that sum to 1."""


@dataclass(eq=False)
class LayerScores:
    """What one layer shows at the asked queries."""

    z: Float[Tensor, "window head d_value"]
    read: Float[Tensor, "window head d_value"]
    """The part of z that comes from the places that are asked for."""
    behind: Float[Tensor, " window"]
    """What a norm behind the attention multiplies its output by."""
    mass: Float[Tensor, "window head"]
    """Attention on the names."""
    directions: Float[Tensor, "side window d_model"]
    """⟨what is added to the stream that the layer reads, direction⟩ is the change of the score on
    each side, summed over heads by their mass."""


def unknown_scores(model: Any, paths: DirectPaths) -> str:
    """Why the scores of later heads cannot be asked, found once; empty where they can.

    Args:
        model: a `headscope.models.load.Model`.
        paths: its direct paths.
    """
    if model.engine not in _why_not:
        length = min(TRIED, model.vocabulary_size)
        tokens = torch.arange(length, device=model.device)[None]
        sides = torch.zeros(3, 1, length, device=model.device)
        sides[:, 0, 1] = 1.0
        places = Places(torch.tensor([length - 1], device=model.device), sides[0], sides[0], sides)
        try:
            later_scores(model.engine, paths, tokens, places)
            _why_not[model.engine] = ""
        except Exception as error:  # a model's own code may fail in any way
            reason = str(error).strip().split("\n")[0]
            _why_not[model.engine] = reason or type(error).__name__
    return _why_not[model.engine]


_why_not: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def _check_scores(engine: Any) -> None:
    if getattr(engine, "name", "") != "fused":
        raise ModelError("only the fused engine shows queries and keys")
    for module in attention_layers(engine.network):
        if any("norm" in type(each).__name__.lower() for each in module.modules()):
            raise ModelError("its layers norm their queries, keys or latents")


def later_scores(
    engine: Any, paths: DirectPaths, tokens: Int[Tensor, "window position"], places: Places
) -> list[LayerScores]:
    """Each layer's heads, and the directions that change its own scores, in one forward pass.

    Raises:
        ModelError: the engine does not show queries and keys, or norms them; or what a layer's
            attention reads is neither the stream nor one norm of it.
    """
    _check_scores(engine)
    found: list[LayerScores] = []
    kept: dict[str, Any] = {}
    at = torch.arange(len(tokens), device=tokens.device), places.query

    def take(_: int, scores: Scores) -> None:
        groups = scores.query.shape[1] // scores.key.shape[1]
        key = scores.key.detach().repeat_interleave(groups, 1)
        query = scores.query[at[0], :, at[1]]
        raw = torch.einsum("whd,whkd->whk", query, key) * scores.scale
        whole = raw.detach()
        if scores.beside.bias is not None:
            bias = scores.beside.bias
            whole = whole + bias.expand(len(tokens), -1, -1, -1)[at[0], :, at[1]]
        if scores.beside.cap is not None:
            whole = (whole / scores.beside.cap).tanh() * scores.beside.cap
        normaliser = scores.normaliser.detach()[at[0], :, at[1]]
        later = torch.arange(key.shape[2], device=key.device) > at[1][:, None, None]
        pattern = (whole - normaliser[..., None]).masked_fill(later, -torch.inf).exp()
        mass = torch.einsum("whk,wk->wh", pattern, places.names)
        asked = torch.einsum("wh,whk,swk->s", mass, raw, places.sides)
        gradients = [
            torch.autograd.grad(each, kept["leaf"], retain_graph=True)[0][at[0], at[1]]
            for each in asked
        ]
        if scores.value is None:
            raise ModelError("the engine does not show values")
        value = scores.value.detach()
        value = value.repeat_interleave(pattern.shape[1] // value.shape[1], 1)
        read = torch.einsum("whk,wk,whkd->whd", pattern, places.read, value)
        kept.update(mass=mass, read=read, gradients=torch.stack(gradients))

    def finish(layer: int, behind: Tensor) -> None:
        norm, scale = kept["norm"], kept["scale"]
        directions = kept["gradients"] if norm is None else norm.pulled_back(kept["gradients"])
        directions = directions * scale[:, None]
        found.append(LayerScores(kept["z"], kept["read"], behind, kept["mass"], directions))

    def watch(layer: int, block: Any, attention: nn.Module, output: Any) -> Iterator[Any]:
        def of_block(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            kept.clear()
            kept["stream"] = inputs[0] if inputs else named["hidden_states"]
            kept["seen"] = []

        def of_part(module: nn.Module, inputs: tuple[Any, ...], given: Any) -> None:
            if inputs and isinstance(given, Tensor) and "leaf" not in kept:
                kept["seen"].append((module, inputs[0], given))

        def into(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
            read = inputs[0] if inputs else named["hidden_states"]
            kept["norm"], kept["scale"] = _norm_before(kept, read, at)
            torch.set_grad_enabled(True)
            kept["leaf"] = read.detach().clone().requires_grad_()
            if inputs:
                return (kept["leaf"], *inputs[1:]), named
            return inputs, {**named, "hidden_states": kept["leaf"]}

        def of_z(_: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
            torch.set_grad_enabled(False)
            z = inputs[0].detach()
            kept["z"] = z.reshape(*tokens.shape, paths.heads, -1)[at[0], at[1]].float()
            if paths.found.behind[layer] is None:
                finish(layer, kept["z"].new_ones(len(tokens)))
            return (z, *inputs[1:])

        def of_behind(_: nn.Module, inputs: tuple[Tensor, ...], given: Tensor) -> None:
            norm = paths.found.behind[layer]
            if norm is not None:
                finish(layer, norm.scale(inputs[0][at], given[at]))

        yield block.register_forward_pre_hook(of_block, with_kwargs=True)
        for part in block.children():
            yield part.register_forward_hook(of_part)
        yield attention.register_forward_pre_hook(into, with_kwargs=True)
        yield output.register_forward_pre_hook(of_z)
        norm = paths.found.behind[layer]
        if norm is not None:
            yield norm.module.register_forward_hook(of_behind)

    parts = zip(
        paths.found.blocks, attention_layers(engine.network), paths.found.outputs, strict=True
    )
    with ExitStack() as hooks, torch.no_grad(), reading(take):
        for layer, each in enumerate(parts):
            for handle in watch(layer, *each):
                hooks.callback(handle.remove)
        engine.network.base_model(tokens, **only_forward(engine.stated))
    return found


def _norm_before(
    kept: dict[str, Any], read: Tensor, at: tuple[Tensor, Tensor]
) -> tuple[FrozenNorm | None, Tensor]:
    """The norm between the stream and what the attention reads, and its scale at the queries."""
    stream = kept["stream"]
    if read is stream:
        return None, stream.new_ones(len(stream)).float()
    for module, before, behind in kept["seen"]:
        if behind is read and (before is stream or torch.equal(before, stream)):
            norm = frozen_norm(module, before, behind)
            return norm, norm.scale(before[at], behind[at])
    raise ModelError("what its attention reads is not the stream behind one norm")
