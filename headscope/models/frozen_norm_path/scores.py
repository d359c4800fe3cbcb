"""Change of the scores of later heads' queries by what heads write at a query.

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

from headscope.errors import ModelError, first_line
from headscope.models.engines.capture import capturing
from headscope.models.engines.log_attention import Scores
from headscope.models.engines.probe import only_forward
from headscope.models.frozen_norm_path import DirectPaths
from headscope.models.frozen_norm_path.norms import FrozenNorm, frozen_norm
from headscope.models.layout.modules import attention_modules

TRIED = 8
"""Tokens of the text on which it is tried."""


class ScoreQueries(NamedTuple):
    """Queries whose scores are read, one of each window, and weights of keys for each side."""

    query: Int[Tensor, " window"]
    names: Float[Tensor, "window key"]
    """1 at keys whose share of attention says how much a head counts."""
    read: Float[Tensor, "window key"]
    """1 where what heads read counts apart."""
    sides: Float[Tensor, "side window key"]
    """Weights of keys that sum to 1."""


@dataclass(eq=False)
class LayerScores:
    """Readings of one layer at these queries."""

    z: Float[Tensor, "window head d_value"]
    read: Float[Tensor, "window head d_value"]
    """The part of z that comes from the places that are asked for."""
    post_scale: Float[Tensor, " window"]
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
        queries = ScoreQueries(
            torch.tensor([length - 1], device=model.device), sides[0], sides[0], sides
        )
        try:
            later_scores(model.engine, paths, tokens, queries)
            _why_not[model.engine] = ""
        except Exception as error:  # a model's own code may fail in any way
            _why_not[model.engine] = first_line(error)
    return _why_not[model.engine]


_why_not: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def _check_scores(engine: Any) -> None:
    if getattr(engine, "name", "") != "fused":
        raise ModelError("only the fused engine shows queries and keys")
    for module in attention_modules(engine.network):
        if any("norm" in type(submodule).__name__.lower() for submodule in module.modules()):
            raise ModelError("its layers norm their queries, keys or latents")


def later_scores(
    engine: Any, paths: DirectPaths, tokens: Int[Tensor, "window position"], queries: ScoreQueries
) -> list[LayerScores]:
    """Each layer's heads, and the directions that change its own scores, in one forward pass.

    Raises:
        ModelError: the engine does not show queries and keys, or norms them; or what a layer's
            attention reads is neither the stream nor one norm of it.
    """
    _check_scores(engine)
    layers: list[LayerScores] = []
    state: dict[str, Any] = {}
    at = torch.arange(len(tokens), device=tokens.device), queries.query

    def take(_: int, scores: Scores) -> None:
        groups = scores.query.shape[1] // scores.key.shape[1]
        key = scores.key.detach().repeat_interleave(groups, 1)
        query = scores.query[at[0], :, at[1]]
        raw = torch.einsum("whd,whkd->whk", query, key) * scores.scale
        scores_of_keys = raw.detach()
        if scores.terms.bias is not None:
            bias = scores.terms.bias
            scores_of_keys = scores_of_keys + bias.expand(len(tokens), -1, -1, -1)[at[0], :, at[1]]
        if scores.terms.cap is not None:
            scores_of_keys = (scores_of_keys / scores.terms.cap).tanh() * scores.terms.cap
        normaliser = scores.normaliser.detach()[at[0], :, at[1]]
        later = torch.arange(key.shape[2], device=key.device) > at[1][:, None, None]
        pattern = (scores_of_keys - normaliser[..., None]).masked_fill(later, -torch.inf).exp()
        mass = torch.einsum("whk,wk->wh", pattern, queries.names)
        weighted = torch.einsum("wh,whk,swk->s", mass, raw, queries.sides)
        gradients = [
            torch.autograd.grad(score, state["leaf"], retain_graph=True)[0][at[0], at[1]]
            for score in weighted
        ]
        if scores.value is None:
            raise ModelError("the engine does not show values")
        value = scores.value.detach()
        value = value.repeat_interleave(pattern.shape[1] // value.shape[1], 1)
        read = torch.einsum("whk,wk,whkd->whd", pattern, queries.read, value)
        state.update(mass=mass, read=read, gradients=torch.stack(gradients))

    def finish(layer: int, post_scale: Tensor) -> None:
        norm, scale = state["norm"], state["scale"]
        directions = state["gradients"] if norm is None else norm.pulled_back(state["gradients"])
        directions = directions * scale[:, None]
        layers.append(LayerScores(state["z"], state["read"], post_scale, state["mass"], directions))

    def hooks_of(layer: int, block: Any, attention: nn.Module, output: Any) -> Iterator[Any]:
        def of_block(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
            state.clear()
            state["stream"] = inputs[0] if inputs else options["hidden_states"]
            state["calls"] = []

        def of_part(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if inputs and isinstance(output, Tensor) and "leaf" not in state:
                state["calls"].append((module, inputs[0], output))

        def into(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
            read = inputs[0] if inputs else options["hidden_states"]
            state["norm"], state["scale"] = norm_before(state, read, at)
            torch.set_grad_enabled(True)
            state["leaf"] = read.detach().clone().requires_grad_()
            if inputs:
                return (state["leaf"], *inputs[1:]), options
            return inputs, {**options, "hidden_states": state["leaf"]}

        def of_z(_: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
            torch.set_grad_enabled(False)
            z = inputs[0].detach()
            state["z"] = z.reshape(*tokens.shape, paths.heads, -1)[at[0], at[1]].float()
            if paths.modules.post_norms[layer] is None:
                finish(layer, state["z"].new_ones(len(tokens)))
            return (z, *inputs[1:])

        def of_behind(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            norm = paths.modules.post_norms[layer]
            if norm is not None:
                finish(layer, norm.scale(inputs[0][at], output[at]))

        yield block.register_forward_pre_hook(of_block, with_kwargs=True)
        for part in block.children():
            yield part.register_forward_hook(of_part)
        yield attention.register_forward_pre_hook(into, with_kwargs=True)
        yield output.register_forward_pre_hook(of_z)
        norm = paths.modules.post_norms[layer]
        if norm is not None:
            yield norm.module.register_forward_hook(of_behind)

    modules = zip(
        paths.modules.blocks, attention_modules(engine.network), paths.modules.outputs, strict=True
    )
    with ExitStack() as hooks, torch.no_grad(), capturing(take):
        for layer, layer_modules in enumerate(modules):
            for handle in hooks_of(layer, *layer_modules):
                hooks.enter_context(handle)
        engine.network.base_model(tokens, **only_forward(engine.dimensions))
    return layers


def norm_before(
    state: dict[str, Any], read: Tensor, at: tuple[Tensor, Tensor]
) -> tuple[FrozenNorm | None, Tensor]:
    """The norm between the stream and what the attention reads, and its scale at the queries."""
    stream = state["stream"]
    if read is stream:
        return None, stream.new_ones(len(stream)).float()
    for module, inputs, outputs in state["calls"]:
        if outputs is read and (inputs is stream or torch.equal(inputs, stream)):
            norm = frozen_norm(module, inputs, outputs)
            return norm, norm.scale(inputs[at], outputs[at])
    raise ModelError("what its attention reads is not the stream behind one norm")
