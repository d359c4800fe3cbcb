"""Plain linear layers in the place of wrapped ones, in headscope's own copy of a network.

A `weight` that is read or shuffled past its module leaves out what is around it: LoRA adds a
product to the output, weight_norm computes the weight again at every call, and a hook may change
what comes out. Whatever is around a matrix, if it computes x W + b, then W and b follow from its
outputs for the identity and for zero.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headscope.errors import ModelError
from headscope.models.layout.projections import (
    attention_modules,
    projection_modules,
    projection_names,
    weight_rows,
)

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-5}
"""Largest difference of an output by rounding, as a share of its length."""
_HALF_TOLERANCE = 1e-2
_TRIALS = 16
"""Random inputs on which a module is compared with its matrix."""


def merge_wrapped(name: str, network: Any) -> tuple[str, ...]:
    """Put plain linear layers in the place of wrapped ones, in place.

    These are W_Q, W_K, W_V and W_O of each layer, the embedding and the unembedding.

    Args:
        name: of the model, for messages.
        network: a model of transformers in evaluation mode.

    Returns:
        A note on what was merged, if there is something.

    Raises:
        ModelError: a projection of attention computes something other than x W + b.
    """
    # Q, K, V and O of every layer, then embedding and unembedding
    merged = []
    attention: list[Any] = attention_modules(network)
    for layer_attention, holder in zip(attention, projection_modules(network), strict=True):
        for part in projection_names(holder):
            module = holder.get_submodule(part)
            if computes_its_matrix(module):
                continue
            merged.append(_kind(module))
            try:
                plain = _merged(module)
            except TypeError:  # it takes more than a stream (ZAYA's convolutions)
                plain = None
            if plain is None:
                raise ModelError(
                    f"{name}: {part} of layer {layer_attention.layer_idx} ({_kind(module)}) "
                    "computes more than a matrix product and a bias; put a linear layer in its "
                    "place, for an adapter by merge_and_unload()"
                )
            holder.set_submodule(part, plain)
    # an embedding of transformers that scales its rows keeps them as parameters
    embedding = network.get_input_embeddings()
    stores_rows = isinstance(embedding, nn.Embedding) and "weight" in embedding._parameters
    if not stores_rows:
        merged.append(_kind(embedding))
        network.set_input_embeddings(_merged_embedding(embedding))
    # an unembedding of another form changes no attention; direct effects test it
    unembedding = network.get_output_embeddings()
    if unembedding is not None and not computes_its_matrix(unembedding):
        plain = _merged(unembedding)
        if plain is not None:
            merged.append(_kind(unembedding))
            network.set_output_embeddings(plain)
    if not merged:
        return ()
    kinds = ", ".join(dict.fromkeys(merged))
    return (f"{len(merged)} wrapped matrices ({kinds}) are merged in a copy of the model",)


def refuse_wrapped_bridge(name: str, bridge: Any) -> None:
    """Refuse a bridge around wrapped matrices, which belongs to the user and is not changed.

    Raises:
        ModelError: a projection of attention computes more than its matrix.
    """
    # modules of transformers that the bridge reads as matrices: those of attention, and W_U
    components: dict[str, Any] = {"unembed": getattr(bridge, "unembed", None)}
    for layer, block in enumerate(bridge.blocks):
        attention = getattr(block, "attn", nn.Module())
        for part, component in attention.named_modules():
            components[f"{part} of layer {layer}"] = component
    for title, component in components.items():
        module: Any = getattr(component, "original_component", None)
        weight: Any = getattr(module, "weight", None)
        is_matrix = isinstance(weight, Tensor) and weight.dim() == 2
        if is_matrix and not computes_its_matrix(module):
            raise ModelError(
                f"{name}: {title} of this bridge ({_kind(module)}) computes more than its matrix; "
                "pass (model, tokenizer), or merge it before, an adapter by merge_and_unload()"
            )


@torch.no_grad()
def computes_its_matrix(module: nn.Module) -> bool:
    """Test if a linear layer's output is its input times its `weight`, which is a parameter.

    >>> computes_its_matrix(nn.Linear(3, 2))
    True
    >>> computes_its_matrix(torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))
    False
    """
    # a layer of these classes with nothing around it needs no trial; what accelerate puts around it
    # brings the weights from elsewhere for each call, and they stay what they are
    is_linear = type(module) in (nn.Linear, Conv1D) and "weight" in module._parameters
    is_hooked = bool(module._forward_hooks or module._forward_pre_hooks)
    runs_own_code = "forward" not in vars(module) or hasattr(module, "_hf_hook")
    if is_linear and runs_own_code and not is_hooked:
        return True
    # of any other the output decides
    if not isinstance(module, nn.Linear | Conv1D) or "weight" not in module._parameters:
        return False
    if module.weight.is_meta:
        return True  # accelerate brings the weight from elsewhere for each call
    rows = weight_rows(module)
    inputs = _random_inputs(rows)
    expected = inputs @ rows.T + (0 if module.bias is None else module.bias)
    return _is_close(_output(module, inputs), expected)


@torch.no_grad()
def _merged(module: nn.Module) -> nn.Module | None:
    """A linear layer that computes the same; None if the module is not of the form x W + b."""
    # the matrix is read from the outputs for the identity, the bias from that for 0
    base = next((part for part in module.modules() if isinstance(part, nn.Linear | Conv1D)), None)
    if base is None:
        return None
    base_rows = weight_rows(base)
    identity = torch.eye(base_rows.shape[1], dtype=base_rows.dtype, device=base_rows.device)
    bias = _output(module, torch.zeros_like(identity[:1]))[0]
    weight = _output(module, identity) - bias
    # random inputs show whether the module is linear
    inputs = _random_inputs(base_rows)
    if not _is_close(_output(module, inputs), inputs @ weight + bias):
        return None
    inside, outside = weight.shape
    # the layout of a Conv1D is known to whoever splits it into queries, keys and values
    is_transposed = isinstance(base, Conv1D)
    with torch.device("meta"):  # draws no random weights
        has_bias = is_transposed or bool(bias.any())
        merged = Conv1D(outside, inside) if is_transposed else nn.Linear(inside, outside, has_bias)
    stored = weight if is_transposed else weight.T
    merged.weight = nn.Parameter(stored.contiguous(), requires_grad=False)
    if has_bias:
        merged.bias = nn.Parameter(bias, requires_grad=False)
    return merged.eval()


@torch.no_grad()
def _merged_embedding(embedding: nn.Module) -> nn.Embedding:
    weight: Any = embedding.weight
    rows = embedding(torch.arange(len(weight), device=weight.device))
    if not isinstance(rows, Tensor):
        raise ModelError(f"its embedding is a {_kind(embedding)}, which returns no tensor")
    with torch.device("meta"):
        merged = nn.Embedding(rows.shape[0], rows.shape[1])
    merged.weight = nn.Parameter(rows, requires_grad=False)
    return merged.eval()


def _kind(module: nn.Module) -> str:
    """The package and the class of a module, such as `peft.Linear`."""
    package = type(module).__module__.partition(".")[0]
    return f"{package}.{type(module).__name__}"


def _random_inputs(rows: Float[Tensor, "output input"]) -> Float[Tensor, "trial input"]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(_TRIALS, rows.shape[1], generator=generator).to(rows)


def _output(module: nn.Module, inputs: Float[Tensor, "trial input"]) -> Tensor:
    """Output for a window of these tokens."""
    output: Tensor = module(inputs[None])
    return output[0]


def _is_close(output: Tensor, expected: Tensor) -> bool:
    if output.shape != expected.shape:
        return False
    tolerance = TOLERANCE.get(output.dtype, _HALF_TOLERANCE)
    difference = float((output - expected).norm())
    return difference <= tolerance * float(expected.norm())
