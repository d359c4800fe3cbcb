"""Check that a device computes what the processor computes, on a short text.

Some do not, and without an error: on Apple's `mps` TransformerLens once gave wrong results for
whole models (its issue 1178).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from headscope.attention_kind import CAUSAL
from headscope.errors import ModelError, first_line
from headscope.models.layout.dimensions import attention_kind, read_dimensions
from headscope.models.weights import quiet_logging

TOKENS = 48
TOLERANCE = {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}
"""How far a probability, or a state in units of the largest, may be from the processor's: ours,
some times what two kernels on one device may differ by, as deep models add up roundings. Results
that are wrong are off by about the size of the numbers themselves."""
REFERENCE = ("cpu", "meta")
"""Not compared: the one that is believed, and the one that computes nothing."""
_PATTERNS = ("attentions",)
_STATES = ("last_hidden_state",)

Outputs = dict[str, Tensor]
"""What a network computes on a short text, by its name, on the processor."""


def move_checked(name: str, network: Any, device: str) -> Any:
    """The network on a device, once it computes there what it computes on the processor.

    Args:
        name: of the model, for messages.
        network: of transformers, on the processor, with eager attention.
        device: where it is to run.

    Raises:
        ModelError: it computes something else there, or fails; the message has both numbers.
    """
    if not _compared(device):
        return network.to(device)
    expected = _outputs(name, network)
    network = network.to(device)
    _compare(name, device, network.dtype, expected, _outputs(name, network))
    return network


def check_device(name: str, network: Any) -> None:
    """Compare a network that is on a device already with a copy of it on the processor.

    Args:
        name: of the model, for messages.
        network: of transformers, on one device, with eager attention; it stays as it is.

    Raises:
        ModelError: see `moved`.
    """
    device = str(network.get_input_embeddings().weight.device)
    if _compared(device):
        expected = _outputs(name, _on_processor(network))
        _compare(name, device, network.dtype, expected, _outputs(name, network))


def _compared(device: str) -> bool:
    return torch.device(device).type not in REFERENCE


def _on_processor(network: Any) -> Any:
    """A copy; the tensors of the network itself stay where they are."""
    copies: dict[int, Any] = {}
    for tensor in chain(network.parameters(), network.buffers()):
        plain = tensor.detach().cpu()
        is_parameter = isinstance(tensor, nn.Parameter)
        copies[id(tensor)] = nn.Parameter(plain, requires_grad=False) if is_parameter else plain
    return copy.deepcopy(network, copies)


def _outputs(name: str, network: Any) -> Outputs:
    embedding = network.get_input_embeddings().weight
    length = min(TOKENS, read_dimensions(name, network.config).context or TOKENS)
    tokens = torch.arange(length, device=embedding.device)[None] % len(embedding)
    options: dict[str, Any] = {"output_attentions": True}
    if attention_kind(network.config) == CAUSAL:
        options["use_cache"] = False
    try:
        with torch.inference_mode(), quiet_logging():
            output = network.base_model(tokens, **options)
    except Exception as error:  # a model's own code may fail in any way
        reason = first_line(error)
        raise ModelError(
            f"{name}: the model fails on a short text on {embedding.device}: {reason:.300}"
        ) from error
    return dict(_numbers(output))


def _numbers(output: Any) -> Iterator[tuple[str, Tensor]]:
    for kind in _PATTERNS:
        for layer, pattern in enumerate(getattr(output, kind, None) or ()):
            if isinstance(pattern, Tensor):  # a layer of a hybrid may have none
                yield f"layer {layer} of {kind}", pattern.float().cpu()
    for kind in _STATES:
        if isinstance(states := getattr(output, kind, None), Tensor):
            states = states.float().cpu()
            yield kind, states / states.abs().max().clamp_min(1e-9)


def _compare(
    name: str, device: str, dtype: torch.dtype, expected: Outputs, outputs: Outputs
) -> None:
    """Refuse the first that differs by more than rounding."""
    for part, reference in expected.items():
        computed = outputs.get(part)
        if computed is None or computed.shape != reference.shape:
            raise ModelError(f"{name}: on {device} the model gives no {part}, and on cpu it does")
        difference = (computed - reference).abs().nan_to_num(nan=torch.inf)
        worst = int(difference.argmax())
        if float(difference.flatten()[worst]) > TOLERANCE.get(dtype, TOLERANCE[torch.bfloat16]):
            on_cpu, on_device = (float(values.flatten()[worst]) for values in (reference, computed))
            raise ModelError(
                f"{name}: {device} computes something else than the processor: {part} has "
                f"{on_device:.6g} where cpu has {on_cpu:.6g}, on a short text: a known fault of "
                "some devices. Run with --device cpu, or with another version of torch"
            )
