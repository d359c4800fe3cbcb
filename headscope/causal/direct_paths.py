"""Direct paths: how what a head writes reaches the logits with the scale of every norm frozen.

Modules have other names in every layout, so that they are found by what they do on a short text:
what a block adds must be what its attention writes, behind a norm if there is one, and the output
of one other module; and the last norm's output, unembedded, must be the logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.causal.loss import logit_map
from headscope.errors import HeadscopeError, ModelError, first_line
from headscope.models.engines.engine import StoppedError
from headscope.models.families import refuse_encoder, refuse_mixed_heads
from headscope.models.layout.projections import (
    block_input,
    layer_list,
    output_matrix,
    output_projection,
    projection_modules,
)
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of

OnHeadOutputs = Callable[[int, Float[Tensor, "query head d_value"], Float[Tensor, " query"]], None]
"""Called with a layer, every head's output z at the asked queries, and what a norm behind the
attention multiplies it by there."""
OnStream = Callable[[int, Float[Tensor, "query d_model"]], None]
"""Called with a layer and the residual stream that it reads at the asked queries."""
TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 8e-2}
"""Largest difference of a reconstructed output from a module's own, as a share of its length."""
TOKENS = 24
"""Length of the text on which the modules are identified."""


@dataclass(frozen=True, eq=False)
class FrozenNorm:
    """A norm y = s(x) · gain ⊙ (x − mean) + bias, whose s is one number of each token.

    RMSNorm subtracts no mean. Gains that count from 1 (Gemma) have the 1 added already.
    """

    module: nn.Module
    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"]
    centred: bool

    def pulled_back(self, directions: Float[Tensor, "*_ d_model"]) -> Float[Tensor, "*_ d_model"]:
        """Directions behind the norm as directions before it: ⟨y − bias, d⟩ = s · ⟨x, result⟩."""
        scaled = directions * self.gain.to(directions)
        return _centred(scaled) if self.centred else scaled

    def linear(self, inputs: Float[Tensor, "*_ d_model"]) -> Float[Tensor, "*_ d_model"]:
        """The output without bias and scale."""
        centred = _centred(inputs) if self.centred else inputs
        return centred * self.gain.to(inputs)

    def scale(
        self, inputs: Float[Tensor, "*_ d_model"], outputs: Float[Tensor, "*_ d_model"]
    ) -> Float[Tensor, "*_"]:
        """S of each token, as the model's own norm applied it."""
        linear = self.linear(inputs.float())
        bias = self.bias.to(outputs.device).float()
        unbiased = outputs.float() - bias
        length = linear.square().sum(-1).clamp_min(1e-30)
        return (unbiased * linear).sum(-1) / length


def _centred(values: Float[Tensor, "*_ d_model"]) -> Float[Tensor, "*_ d_model"]:
    return values - values.mean(-1, keepdim=True)


@dataclass(eq=False)
class PathEnd:
    """The last norm at the end of a forward pass."""

    scale: Float[Tensor, " query"] | None = None
    """Factor of the last norm at the asked queries."""


@dataclass(frozen=True, eq=False)
class DirectPaths:
    """The direct path from every head to the logits of a model.

    The logit of a token at a query, before any cap (Gemma 2), is a sum over what heads, MLPs,
    biases and the embedding add to the residual stream, each times the last norm's scale there;
    see `headscope.measure.effect_queries`.
    """

    heads: int
    blocks: Sequence[nn.Module]
    outputs: Sequence[nn.Module]
    """W_O of each layer; what goes in is every head's output z, side by side."""
    post_norms: Sequence[FrozenNorm | None]
    """The norm between W_O and the residual stream, if there is one."""
    final_norm: FrozenNorm
    """The last one."""
    unembedding: Any
    logit_scale: float
    """Factor between the unembedded stream and the logits (Cohere, Granite)."""

    @property
    def layers(self) -> int:
        """Layers with attention."""
        return len(self.outputs)

    @torch.no_grad()
    def directions(self, tokens: Int[Tensor, " token"]) -> Float[Tensor, "token d_model"]:
        """Each token's unembedding, scaled as its logit is, as a direction before the last norm."""
        weight = self.unembedding.weight
        rows = weight[tokens.to(weight.device)].float()
        return self.final_norm.pulled_back(rows) * self.logit_scale

    @torch.no_grad()
    def through_heads(
        self, layer: int, directions: Float[Tensor, "token d_model"]
    ) -> Float[Tensor, "token head d_value"]:
        """The same as directions of each head's output z: through W_O and the norm behind it."""
        post_norm = self.post_norms[layer]
        if post_norm is not None:
            directions = post_norm.pulled_back(directions)
        matrix = output_matrix(self.outputs[layer])
        at_heads = directions.to(matrix.device) @ matrix.float().T
        return at_heads.view(len(directions), self.heads, -1)

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
        watch = _Watch(self, queries, take)
        with ExitStack() as hooks:
            # z stands before W_O; a norm behind W_O multiplies it by a scale that is known only
            # when the norm has run
            for layer, output in enumerate(self.outputs):
                before_output = partial(watch.before_output, layer)
                hooks.enter_context(output.register_forward_pre_hook(before_output))
                norm = self.post_norms[layer]
                if norm is not None:
                    after_norm = partial(watch.after_norm, layer, norm)
                    hooks.enter_context(norm.module.register_forward_hook(after_norm))
                if stream is not None:
                    before_block = partial(watch.before_block, layer, stream)
                    block = self.blocks[layer]
                    hooks.enter_context(
                        block.register_forward_pre_hook(before_block, with_kwargs=True)
                    )
            hooks.enter_context(self.final_norm.module.register_forward_hook(watch.after_last_norm))
            yield watch.end


@dataclass(eq=False)
class _Watch:
    """Hooks of one forward pass, which torch calls before and after modules."""

    paths: DirectPaths
    queries: Int[Tensor, " query"]
    take: OnHeadOutputs
    end: PathEnd = field(default_factory=PathEnd)
    _z: dict[int, Tensor] = field(default_factory=dict)
    """Outputs of layers whose norm has not run yet."""

    def before_block(
        self, layer: int, read: OnStream, _: nn.Module, inputs: Any, options: dict[str, Any]
    ) -> None:
        """Hand on the stream that a layer reads."""
        read(layer, self._at(block_input(inputs, options)))

    def before_output(self, layer: int, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Hand on what heads write, or keep it until the norm behind W_O has run."""
        flat = self._at(inputs[0]).float()
        z = flat.view(len(flat), self.paths.heads, -1)
        if self.paths.post_norms[layer] is None:
            self.take(layer, z, z.new_ones(len(z)))
        else:
            self._z[layer] = z

    def after_norm(
        self,
        layer: int,
        norm: FrozenNorm,
        _: nn.Module,
        inputs: tuple[Tensor, ...],
        output: Tensor,
    ) -> None:
        """Hand on what heads write, with the scale of the norm behind W_O."""
        scale = norm.scale(self._at(inputs[0]), self._at(output))
        self.take(layer, self._z.pop(layer), scale)

    def after_last_norm(self, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keep the scale of the last norm, and end the pass."""
        self.end.scale = self.paths.final_norm.scale(self._at(inputs[0]), self._at(output))
        raise StoppedError

    def _at(self, values: Tensor) -> Tensor:
        """The values at the queries."""
        flat = values.flatten(0, 1)
        return flat.index_select(0, self.queries.to(values.device))


def direct_paths(model: Model) -> DirectPaths:
    """The direct paths of a model.

    Args:
        model: a causal model that the fused engine reads.

    Raises:
        ModelError: it is an encoder, runs by another engine, mixes its heads' outputs before W_O,
            or computes its logits in another way, or an error ended a forward pass; the message
            states which.
    """
    refuse_encoder(model, "classify --direct-effects")
    refuse_mixed_heads(model)
    network = plain_network_of(model)
    try:
        return find_paths(network, model.heads)
    except Exception as error:  # a model's own code may fail in any way
        kind = "" if isinstance(error, HeadscopeError) else f"{type(error).__name__}: "
        raise ModelError(
            f"{model.name}: its direct effects cannot be measured ({kind}{first_line(error)}); run "
            "without --direct-effects"
        ) from error


@torch.no_grad()
def norms_of(network: Any) -> list[FrozenNorm]:
    """The norms that read the residual stream, found by their names and by what they do."""
    weight = network.get_input_embeddings().weight
    calls = _calls(network, _text(weight))
    norms = []
    for call in calls.values():
        if "norm" in type(call.module).__name__.lower():
            with suppress(ModelError):  # one that does something else keeps its own gradient
                norm = _frozen_norm(call)
                # gradients pass these, which were made without any
                gain, bias = norm.gain.clone(), norm.bias.clone()
                norms.append(replace(norm, gain=gain, bias=bias))
    return norms


class _Call(NamedTuple):
    """Input and output of a module."""

    module: nn.Module
    inputs: Tensor
    outputs: Tensor


@torch.inference_mode()
def find_paths(network: Any, heads: int) -> DirectPaths:
    """The modules that what heads write goes through.

    Raises:
        ModelError: what a block adds is not what its attention and one other module write, or the
            logits are not what the last norm hands on, unembedded.
    """
    outputs = [output_projection(module) for module in projection_modules(network)]
    blocks = list(layer_list(network, len(outputs)))
    # one short text shows what each module does with the stream
    tokens = _text(network.get_input_embeddings().weight)
    calls = _calls(network, tokens)
    post_norms = []
    for block, output in zip(blocks, outputs, strict=True):
        post_norms.append(_post_norm(calls, block, output))
    # what stands between the last block and the logits
    final_norm, unembedding = _final_modules(network, tokens, calls, blocks[-1])
    return DirectPaths(
        heads=heads,
        blocks=blocks,
        outputs=outputs,
        post_norms=post_norms,
        final_norm=final_norm,
        unembedding=unembedding,
        logit_scale=logit_map(network).scale,
    )


def _text(weight: Tensor) -> Int[Tensor, "1 token"]:
    """A short text for a network with this embedding."""
    positions = torch.arange(TOKENS, device=weight.device)
    return (positions[None] * 7 + 3) % len(weight)


def _calls(network: Any, tokens: Tensor) -> dict[nn.Module, _Call]:
    """The last call of each module that takes one stream and gives one."""
    calls: dict[nn.Module, _Call] = {}
    width = network.get_input_embeddings().weight.shape[1]

    def note(module: nn.Module, inputs: Any, options: Any, output: Any) -> None:
        stream = inputs[0] if inputs else options.get("hidden_states")
        result = output[0] if isinstance(output, tuple) else output
        if not isinstance(stream, Tensor) or not isinstance(result, Tensor):
            return
        if result.dim() >= 2:
            # some layouts add in place to what a module gave
            calls[module] = _Call(module, stream.clone(), result.clone())

    with ExitStack() as hooks:
        for module in network.modules():
            hook = module.register_forward_hook(note, with_kwargs=True)
            hooks.enter_context(hook)
        network(tokens, use_cache=False)
    # other modules take or give something else than a whole stream
    size = tokens.numel() * width
    return {module: call for module, call in calls.items() if call.outputs.numel() == size}


def _post_norm(
    calls: dict[nn.Module, _Call], block: nn.Module, output: nn.Module
) -> FrozenNorm | None:
    """The norm between W_O and the stream, if there is one; checks what the block adds."""
    # what the block adds to the stream, and what its W_O writes
    layer = calls[block]
    shape = layer.outputs.shape
    output_stream = layer.outputs.float()
    added = output_stream - layer.inputs.reshape(shape).float()
    written = calls[output].outputs.reshape(shape).float()
    length = float(max(added.norm(), output_stream.norm() * 0.1))
    slack = _tolerance(layer.outputs) * length
    # a norm behind W_O takes what it writes and gives something else
    called = [module for module in block.modules() if module in calls]
    inside = [calls[module] for module in called if module not in (block, output)]
    norms: list[_Call | None] = [None]
    for call in inside:
        is_behind_output = _is_close(call.inputs, written)
        if is_behind_output and not _is_close(call.outputs, written):
            norms.append(call)
    # with the right norm, the remainder is the output of one other module
    for norm in norms:
        by_attention = written if norm is None else norm.outputs.reshape(shape).float()
        by_other = added - by_attention
        for call in inside:
            other = call.outputs.reshape(shape).float()
            if float((by_other - other).norm()) <= slack:
                return None if norm is None else _frozen_norm(norm)
    raise ModelError("a block adds more than what its attention and one other module write")


def _final_modules(
    network: Any, tokens: Tensor, calls: dict[nn.Module, _Call], last: nn.Module
) -> tuple[FrozenNorm, Any]:
    """The last norm and the unembedding.

    Raises:
        ModelError: the logits are not what the last norm hands on, unembedded.
    """
    stream = calls[last].outputs
    final = network.base_model(tokens, use_cache=False).last_hidden_state
    logits = network(tokens, use_cache=False).logits.float()
    unembedding = network.get_output_embeddings()
    # by the matrix that `directions` reads, and not by its module
    bias = getattr(unembedding, "bias", None)
    rebuilt = nn.functional.linear(final, unembedding.weight, bias).float()
    if _share_off(logit_map(network).logits(rebuilt), logits) >= _tolerance(final):
        raise ModelError("the logits are not the last norm's output, unembedded")
    # the last norm takes the last block's stream and gives the final states
    inside = set(last.modules())
    for call in calls.values():
        is_between = _is_close(call.inputs, stream) and _is_close(call.outputs, final)
        if is_between and call.module not in inside:
            return _frozen_norm(call), unembedding
    raise ModelError("no norm stands between the last block and the unembedding")


@torch.inference_mode()
def _frozen_norm(call: _Call) -> FrozenNorm:
    """A norm as a linear map, found by what it does.

    Raises:
        ModelError: it does something else.
    """
    # random inputs show the norm in all directions, and its answer to 0 is the bias
    module = call.module
    width = call.inputs.shape[-1]
    generator = torch.Generator().manual_seed(0)
    trial = torch.randn(64, width, generator=generator).to(call.inputs)
    answer = module(trial)
    if isinstance(answer, tuple):
        answer = answer[0]
    answer = answer.float()
    bias = getattr(module, "bias", None)
    bias = bias.detach() if isinstance(bias, Tensor) else answer.new_zeros(width)
    unbiased = answer - bias.float()
    # a LayerNorm centres first and an RMSNorm does not: the one that rebuilds the outputs is right
    inputs = call.inputs.reshape(-1, width).float()
    outputs = call.outputs.reshape(-1, width).float()
    for centred in (False, True):
        moved = _centred(trial.float()) if centred else trial.float()
        mean_square = moved.square().mean(-1, keepdim=True)
        unit = moved / mean_square.sqrt()
        # least squares of one gain for each coordinate
        gain = (unbiased * unit).sum(0) / unit.square().sum(0)
        norm = FrozenNorm(module, gain, bias, centred)
        scale = norm.scale(inputs, outputs)
        rebuilt = scale[:, None] * norm.linear(inputs) + bias.float()
        if _share_off(rebuilt, outputs) < _tolerance(call.inputs):
            return norm
    raise ModelError("a norm multiplies by more than one number of each token")


def _tolerance(values: Tensor) -> float:
    return TOLERANCE.get(values.dtype, 8e-2)


def _share_off(values: Tensor, expected: Tensor) -> float:
    length = expected.norm().clamp_min(1e-30)
    return float((values - expected).norm() / length)


def _is_close(first: Tensor, second: Tensor) -> bool:
    if first.numel() != second.numel():
        return False
    a, b = first.float().flatten(), second.float().flatten()
    return bool(torch.allclose(a, b, rtol=1e-4, atol=1e-6))
