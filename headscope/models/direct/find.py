"""The modules of a direct path, found by what they do on a short text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.models.direct.norms import TOLERANCE, FrozenNorm, frozen_norm
from headscope.models.engines.modules import attention_layers, with_outputs
from headscope.models.matrices import output_projection

TOKENS = 24
"""Of the text on which the modules are told apart."""
LOGIT_FACTORS = ("logit_scale", "logits_scaling")
"""By what some layouts multiply, and by what others divide, their logits."""


@dataclass(frozen=True, eq=False)
class Found:
    """The modules that what heads write goes through."""

    blocks: Sequence[nn.Module]
    outputs: Sequence[nn.Module]
    """W_O of each layer; what goes in is every head's output z, side by side."""
    behind: Sequence[FrozenNorm | None]
    """The norm between W_O and the residual stream, where there is one."""
    factor: float
    """By which what is added to the stream is multiplied (Granite); 1 in most layouts."""
    norm: FrozenNorm
    """The last one."""
    unembedding: Any
    times: float
    """By which the logits are multiplied."""


@dataclass(frozen=True, eq=False)
class _Call:
    """What went into a module and what came out of it."""

    module: nn.Module
    before: Tensor
    behind: Tensor


@torch.inference_mode()
def find_paths(engine: Any) -> Found:
    """The modules of an engine's model.

    Raises:
        ModelError: what a block adds is not what its attention and one other module write, or the
            logits are not what the last norm hands on, unembedded.
    """
    network, blocks, outputs = _parts(engine)
    weight = network.get_input_embeddings().weight
    tokens = (torch.arange(TOKENS, device=weight.device)[None] * 7 + 3) % len(weight)
    calls = _calls(network, tokens)
    stated = getattr(network.config, "get_text_config", lambda **_: network.config)(decoder=True)
    factor = float(getattr(stated, "residual_multiplier", None) or 1.0)
    behind = [
        _behind(calls, block, output, factor) for block, output in zip(blocks, outputs, strict=True)
    ]
    norm, unembedding, times = _end(network, tokens, calls, stated, blocks[-1])
    return Found(blocks, outputs, behind, factor, norm, unembedding, times)


def output_matrix(output: Any) -> Float[Tensor, "head_d_value d_model"]:
    """W_O as z meets it from the left, in place."""
    inner = getattr(output, "original_component", output)
    weight: Tensor = inner.weight
    # GPT-2's Conv1D keeps the transpose of what a linear map keeps
    return weight.detach() if type(inner).__name__ == "Conv1D" else weight.detach().T


def _parts(engine: Any) -> tuple[Any, list[nn.Module], list[nn.Module]]:
    """The network, its blocks, and W_O of each."""
    bridge = getattr(engine, "bridge", None)
    if bridge is not None:
        blocks = list(bridge.blocks)
        return bridge.original_model, blocks, [block.attn.o for block in blocks]
    network = engine.network
    attentions = attention_layers(network)
    outputs = [output_projection(each) for each in with_outputs(network, attentions)]
    for module in network.modules():
        if not isinstance(module, nn.ModuleList) or len(module) != len(attentions):
            continue
        if all(a in set(b.modules()) for a, b in zip(attentions, module, strict=True)):
            return network, list(module), outputs
    raise ModelError("no list of layers with one attention each")


def _calls(network: Any, tokens: Tensor) -> dict[nn.Module, _Call]:
    """The last call of each module that takes one stream and gives one."""
    seen: dict[nn.Module, _Call] = {}
    width = network.get_input_embeddings().weight.shape[1]

    def note(module: nn.Module, inputs: Any, named: Any, output: Any) -> None:
        before = inputs[0] if inputs else named.get("hidden_states")
        behind = output[0] if isinstance(output, tuple) else output
        if isinstance(before, Tensor) and isinstance(behind, Tensor) and behind.dim() >= 2:
            # some layouts add in place to what a module gave
            seen[module] = _Call(module, before.clone(), behind.clone())

    with ExitStack() as hooks:
        for module in network.modules():
            handle = module.register_forward_hook(note, with_kwargs=True)
            hooks.callback(handle.remove)
        network(tokens, use_cache=False)
    return {
        module: call
        for module, call in seen.items()
        if call.behind.numel() == tokens.numel() * width or module is network
    }


def _behind(
    calls: dict[nn.Module, _Call], block: nn.Module, output: nn.Module, factor: float
) -> FrozenNorm | None:
    """The norm between W_O and the stream, None where there is none; checks what the block adds."""
    if block not in calls or output not in calls:
        raise ModelError(f"{type(block).__name__} hands on no residual stream")
    whole, own = calls[block], calls[output]
    written = own.behind.reshape(whole.behind.shape).float()
    inside = [calls[m] for m in block.modules() if m in calls and m not in (block, output)]
    added = whole.behind.float() - whole.before.reshape(whole.behind.shape).float()
    slack = TOLERANCE.get(whole.behind.dtype, 8e-2) * float(
        max(added.norm(), whole.behind.float().norm() * 0.1)
    )
    norms: list[_Call | None] = [None]
    norms += [c for c in inside if _same(c.before, written) and not _same(c.behind, written)]
    for each in norms:
        mine = written if each is None else each.behind.reshape(written.shape).float()
        rest = added - factor * mine
        # the other module's output comes with the same factor
        others = (factor * c.behind.reshape(rest.shape).float() for c in inside)
        if any(float((rest - other).norm()) <= slack for other in others):
            if each is None:
                return None
            return frozen_norm(each.module, each.before, each.behind)
    raise ModelError(
        f"what a {type(block).__name__} adds is not what its attention and one other module write"
    )


def _same(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and bool(
        torch.allclose(one.float().flatten(), other.float().flatten(), rtol=1e-4, atol=1e-6)
    )


def _end(
    network: Any, tokens: Tensor, calls: dict[nn.Module, _Call], stated: Any, last: nn.Module
) -> tuple[FrozenNorm, Any, float]:
    """The last norm, the unembedding, and by what the logits are multiplied."""
    stream = calls[last].behind
    final = network.base_model(tokens, use_cache=False).last_hidden_state
    logits = network(tokens, use_cache=False).logits.float()
    unembedding = network.get_output_embeddings()
    if unembedding is None:
        raise ModelError("it has no unembedding")
    inside = set(last.modules())
    norms = [c for c in calls.values() if c.module not in inside and _same(c.behind, final)]
    norms = [c for c in norms if _same(c.before, stream)]
    if not norms:
        raise ModelError("no norm stands between its last layer and its unembedding")
    plain = unembedding(final).float()
    for times, cap in _heads(stated):
        found = plain * times
        found = found if cap is None else torch.tanh(found / cap) * cap
        off = float((found - logits).norm() / logits.norm().clamp_min(1e-30))
        if off < TOLERANCE.get(final.dtype, 8e-2):
            # the innermost module that does it, as the bridge wraps some in others
            norm = norms[0]
            return frozen_norm(norm.module, norm.before, norm.behind), unembedding, times
    raise ModelError("its logits are more than the unembedded stream")


def _heads(stated: Any) -> Iterator[tuple[float, float | None]]:
    """Factors and caps of logits that a configuration may mean."""
    cap = getattr(stated, "final_logit_softcapping", None)
    scale, divisor = (getattr(stated, name, None) for name in LOGIT_FACTORS)
    times = [1.0, *([scale] if scale else []), *([1 / divisor] if divisor else [])]
    for each in times:
        yield float(each), cap
