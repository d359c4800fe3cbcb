"""The modules of a direct path, found by what they do on a short text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.models.frozen_norm_path.norms import TOLERANCE, FrozenNorm, frozen_norm
from headscope.models.layout.modules import attention_modules, layer_list, projection_modules
from headscope.models.layout.projections import output_projection

TOKENS = 24
"""Of the text on which the modules are told apart."""
LOGIT_FACTORS = ("logit_scale", "logits_scaling")
"""By what some layouts multiply, and by what others divide, their logits."""


@dataclass(frozen=True, eq=False)
class PathModules:
    """The modules that what heads write goes through."""

    blocks: Sequence[nn.Module]
    outputs: Sequence[nn.Module]
    """W_O of each layer; what goes in is every head's output z, side by side."""
    post_norms: Sequence[FrozenNorm | None]
    """The norm between W_O and the residual stream, where there is one."""
    residual_factor: float
    """By which what is added to the stream is multiplied (Granite); 1 in most layouts."""
    final_norm: FrozenNorm
    """The last one."""
    unembedding: Any
    logit_factor: float
    """By which the logits are multiplied."""


@dataclass(frozen=True, eq=False)
class _Call:
    """Input and output of a module."""

    module: nn.Module
    inputs: Tensor
    outputs: Tensor


@torch.inference_mode()
def find_paths(engine: Any) -> PathModules:
    """The modules of an engine's model.

    Raises:
        ModelError: what a block adds is not what its attention and one other module write, or the
            logits are not what the last norm hands on, unembedded.
    """
    network, blocks, outputs = _parts(engine)
    weight = network.get_input_embeddings().weight
    tokens = (torch.arange(TOKENS, device=weight.device)[None] * 7 + 3) % len(weight)
    calls = _calls(network, tokens)
    config = getattr(network.config, "get_text_config", lambda **_: network.config)(decoder=True)
    residual_factor = float(getattr(config, "residual_multiplier", None) or 1.0)
    post_norms = [
        _post_norm(calls, block, output, residual_factor)
        for block, output in zip(blocks, outputs, strict=True)
    ]
    final_norm, unembedding, logit_factor = _final_modules(
        network, tokens, calls, config, blocks[-1]
    )
    return PathModules(
        blocks, outputs, post_norms, residual_factor, final_norm, unembedding, logit_factor
    )


def _parts(engine: Any) -> tuple[Any, list[nn.Module], list[nn.Module]]:
    """The network, its blocks, and W_O of each."""
    bridge = getattr(engine, "bridge", None)
    if bridge is not None:
        blocks = list(bridge.blocks)
        return bridge.original_model, blocks, [block.attn.o for block in blocks]
    network = engine.network
    outputs = [output_projection(module) for module in projection_modules(network)]
    attention = dict(enumerate(attention_modules(network)))
    return network, list(layer_list(network, attention, len(attention))), outputs


def _calls(network: Any, tokens: Tensor) -> dict[nn.Module, _Call]:
    """The last call of each module that takes one stream and gives one."""
    calls: dict[nn.Module, _Call] = {}
    width = network.get_input_embeddings().weight.shape[1]

    def note(module: nn.Module, inputs: Any, options: Any, output: Any) -> None:
        stream = inputs[0] if inputs else options.get("hidden_states")
        result = output[0] if isinstance(output, tuple) else output
        if isinstance(stream, Tensor) and isinstance(result, Tensor) and result.dim() >= 2:
            # some layouts add in place to what a module gave
            calls[module] = _Call(module, stream.clone(), result.clone())

    with ExitStack() as hooks:
        for module in network.modules():
            handle = module.register_forward_hook(note, with_kwargs=True)
            hooks.enter_context(handle)
        network(tokens, use_cache=False)
    return {
        module: call
        for module, call in calls.items()
        if call.outputs.numel() == tokens.numel() * width or module is network
    }


def _post_norm(
    calls: dict[nn.Module, _Call], block: nn.Module, output: nn.Module, residual_factor: float
) -> FrozenNorm | None:
    """The norm between W_O and the stream, None where there is none; checks what the block adds."""
    if block not in calls or output not in calls:
        raise ModelError(f"{type(block).__name__} hands on no residual stream")
    layer, projection = calls[block], calls[output]
    written = projection.outputs.reshape(layer.outputs.shape).float()
    inside = [calls[m] for m in block.modules() if m in calls and m not in (block, output)]
    added = layer.outputs.float() - layer.inputs.reshape(layer.outputs.shape).float()
    slack = TOLERANCE.get(layer.outputs.dtype, 8e-2) * float(
        max(added.norm(), layer.outputs.float().norm() * 0.1)
    )
    candidates: list[_Call | None] = [None]
    candidates += [
        c for c in inside if _is_close(c.inputs, written) and not _is_close(c.outputs, written)
    ]
    for norm in candidates:
        added_by_attention = (
            written if norm is None else norm.outputs.reshape(written.shape).float()
        )
        added_by_other = added - residual_factor * added_by_attention
        # the other module's output comes with the same factor
        others = (residual_factor * c.outputs.reshape(added_by_other.shape).float() for c in inside)
        if any(
            float((added_by_other - output_of_other).norm()) <= slack for output_of_other in others
        ):
            if norm is None:
                return None
            return frozen_norm(norm.module, norm.inputs, norm.outputs)
    raise ModelError(
        f"what a {type(block).__name__} adds is not what its attention and one other module write"
    )


def _is_close(first: Tensor, second: Tensor) -> bool:
    return first.numel() == second.numel() and bool(
        torch.allclose(first.float().flatten(), second.float().flatten(), rtol=1e-4, atol=1e-6)
    )


def _final_modules(
    network: Any, tokens: Tensor, calls: dict[nn.Module, _Call], config: Any, last: nn.Module
) -> tuple[FrozenNorm, Any, float]:
    """The last norm, the unembedding, and by what the logits are multiplied."""
    stream = calls[last].outputs
    final = network.base_model(tokens, use_cache=False).last_hidden_state
    logits = network(tokens, use_cache=False).logits.float()
    unembedding = network.get_output_embeddings()
    if unembedding is None:
        raise ModelError("it has no unembedding")
    inside = set(last.modules())
    norms = [c for c in calls.values() if c.module not in inside and _is_close(c.outputs, final)]
    norms = [c for c in norms if _is_close(c.inputs, stream)]
    if not norms:
        raise ModelError("no norm stands between its last layer and its unembedding")
    plain = unembedding(final).float()
    for logit_factor, cap in _logit_factors(config):
        capped = plain * logit_factor
        capped = capped if cap is None else torch.tanh(capped / cap) * cap
        off = float((capped - logits).norm() / logits.norm().clamp_min(1e-30))
        if off < TOLERANCE.get(final.dtype, 8e-2):
            # the innermost module that does it, as the bridge wraps some in others
            call = norms[0]
            return frozen_norm(call.module, call.inputs, call.outputs), unembedding, logit_factor
    raise ModelError("its logits are more than the unembedded stream")


def _logit_factors(config: Any) -> Iterator[tuple[float, float | None]]:
    """Factors and caps of logits that a configuration may mean."""
    cap = getattr(config, "final_logit_softcapping", None)
    scale, divisor = (getattr(config, name, None) for name in LOGIT_FACTORS)
    factors = [1.0, *([scale] if scale else []), *([1 / divisor] if divisor else [])]
    for factor in factors:
        yield float(factor), cap
