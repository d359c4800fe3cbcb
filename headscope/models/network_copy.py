"""A copy of a network in memory: modules of its own, with the same tensors."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

COMPILED = "_orig_mod"
"""Name under which `torch.compile` keeps the module that it compiles."""


def sharing_copy(network: Any) -> Any:
    """A network of modules and a configuration of its own, with the same tensors.

    Buffers that no checkpoint holds are copied: LongRoPE writes its frequencies into one. What
    `torch.compile` made is left out: compiled code ignores hooks and a change of attention.
    """
    tensors = [*network.parameters(), *network.state_dict(keep_vars=True).values()]
    for module in network.modules():
        # torch's older weight_norm keeps the product of parameters as a plain attribute
        tensors += [value for value in vars(module).values() if isinstance(value, torch.Tensor)]
    copied = copy.deepcopy(network, {id(tensor): tensor for tensor in tensors})
    _leave_compiled_out(copied)
    # accelerate's mixed precision wraps the method, and the copy's would run the original
    vars(copied).pop("forward", None)
    # a GGUF's weights are no longer quantised
    vars(copied.config).pop("quantization_config", None)
    copied.set_attn_implementation("eager")
    # transformers does not switch Falcon, whose forward reads this field; with a mask for SDPA its
    # eager attention would see later positions
    copied.config._attn_implementation = "eager"
    return copied.eval()


def uncompiled(module: Any) -> Any:
    """The module that `torch.compile` compiled; anything else as it is."""
    is_compiled = isinstance(module, nn.Module) and COMPILED in module._modules
    return module._modules[COMPILED] if is_compiled else module


def _leave_compiled_out(network: nn.Module) -> None:
    """Put the original modules and methods in the place of compiled ones, in place."""
    for module in list(network.modules()):
        module._compiled_call_impl = None  # of `module.compile()`
        compiled_method = hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")
        if compiled_method:
            del module.forward
        for name, child in module.named_children():
            module._modules[name] = uncompiled(child)
