"""The function by which a network attends, of layouts too that transformers wrote before its
attention interface: they get to use it.

Each adapter replaces a method of one attention module, makes queries, keys and values as the
module's own code does, and hands them to the registered function. What the model builds as a mask
is left aside: texts are padded on the right alone, and a causal model never sees that.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from headscope.models.layout.modules import number_layers
from headscope.models.layout.table import LAYOUTS

EAGER = "eager"
"""transformers' name for a model's own code, which computes whole patterns."""
_BY = "attends_by"
"""The attribute of an adapted module that names the registered function."""
_Method = Callable[..., tuple[Tensor, None]]


def attend_by(network: Any, name: str) -> None:
    """Let a network's attention be computed by a function of transformers' interface.

    Args:
        network: a model of transformers.
        name: by which the function is registered, or `eager`.
    """
    number_layers(network)
    if not adapted_modules(network):
        network.set_attn_implementation(name)
    elif name == EAGER:
        _undo(network)
    else:
        _adapt(network, name)


def adapted_modules(network: nn.Module) -> list[Any]:
    """The attention modules that need an adapter, in the order of the layers."""
    return [module for module in network.modules() if type(module).__name__ in _METHODS]


def _adapt(network: nn.Module, name: str) -> None:
    """Let the modules of `adapted_modules` attend by a registered function."""
    for layer, module in enumerate(adapted_modules(network)):
        kind = type(module).__name__
        setattr(module, _BY, name)
        setattr(module, _METHODS[kind], MethodType(_ADAPTERS[kind], module))
        # as those say of themselves that use the interface
        module.layer_idx, module.is_causal = layer, True


def _undo(network: nn.Module) -> None:
    """Let the modules of `adapted_modules` attend by their own code again."""
    for module in adapted_modules(network):
        vars(module).pop(_BY, None)
        vars(module).pop(_METHODS[type(module).__name__], None)
        _one_bias(module)


def reaches(network: nn.Module) -> set[int]:
    """Numbers of keys that the queries of such layers reach, where an adapter's mask says so."""
    return {
        module.config.window_size
        for module in adapted_modules(network)
        if getattr(module, "attention_type", "") == "local"
    }


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Every head's output, `[batch position head width]`."""
    function = AttentionInterface()[getattr(module, _BY)]
    output: Tensor = function(
        module, query.to(value.dtype), key.to(value.dtype), value, mask, scaling=scale
    )[0]
    return output


def _scores_of_gpt_neo(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, None]:
    """GPT-Neo does not scale its scores; its local layers have masks of their own."""
    length, local = key.shape[-2], None
    if module.attention_type == "local" and length > module.config.window_size:
        local = module.bias[:, :, :length, :length]
    return _attend(module, query, key, value, local, 1.0).transpose(1, 2), None


def _forward_of_bloom(
    module: Any, states: Tensor, residual: Tensor, alibi: Tensor, *_: Any, **options: Any
) -> tuple[Tensor, None]:
    query, key, value = module._reshape(module.query_key_value(states))
    scale = module.inv_norm_factor
    by_head = alibi.view(len(states), module.num_heads, -1)
    query, key = _with_bias(query, key, by_head / scale)
    output = module.dense(_attend(module, query, key, value, None, scale).flatten(2))
    return residual + output, None


def _forward_of_mpt(
    module: Any, hidden_states: Tensor, position_bias: Tensor | None = None, **options: Any
) -> tuple[Tensor, None]:
    mixed = module.Wqkv(hidden_states)
    if module.clip_qkv:
        mixed = mixed.clamp(min=-module.clip_qkv, max=module.clip_qkv)
    query, key, value = (
        part.unflatten(-1, (module.n_heads, -1)).transpose(1, 2) for part in mixed.chunk(3, -1)
    )
    scale = module.softmax_scale
    if position_bias is not None:
        by_head = position_bias[None, :, 0, -key.shape[2] :]
        query, key = _with_bias(query, key, by_head / scale)
    return module.out_proj(_attend(module, query, key, value, None, scale).flatten(2)), None


def _forward_of_falcon(
    module: Any,
    states: Tensor,
    alibi: Tensor | None = None,
    position_embeddings: tuple[Tensor, Tensor] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    # only a Falcon gets here, so that its code is loaded already
    from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

    split = module._split_heads(module.query_key_value(states))
    query, key, value = (part.transpose(1, 2) for part in split)
    if alibi is not None:
        query, key = _with_bias(query, key, alibi.view(len(states), module.num_heads, -1))
    elif position_embeddings is not None:
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
    scale = module.inv_norm_factor
    return module.dense(_attend(module, query, key, value, None, scale).flatten(2)), None


_METHODS = dict(row.own_code.split(".") for row in LAYOUTS if row.own_code)
"""The method that is replaced, by the class of an attention module."""
_ADAPTERS: dict[str, _Method] = {
    "BloomAttention": _forward_of_bloom,
    "FalconAttention": _forward_of_falcon,
    "GPTNeoSelfAttention": _scores_of_gpt_neo,
    "MptAttention": _forward_of_mpt,
}
"""Replacement of the method, by the class of an attention module."""


def _with_bias(query: Tensor, key: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """One more number of each query and key, whose product is a bias that depends on the key.

    ALiBi is linear in the distance, and what all keys of a query have in common changes no
    softmax; so no matrix of biases is needed, and the plain kernel computes it.
    """
    if key.shape[1] < bias.shape[1]:
        key = key.repeat_interleave(bias.shape[1] // key.shape[1], 1)
    added = bias[..., None].to(key.dtype).expand(*key.shape[:3], 1)
    return torch.cat([query, torch.ones_like(query[..., :1])], -1), torch.cat([key, added], -1)


def _one_bias(module: Any) -> None:
    """Falcon's own code gets the bias once.

    transformers adds ALiBi to the mask for its kernels, and its eager attention adds it again.
    """
    if type(module).__name__ == "FalconAttention":
        module.forward = MethodType(_eager_falcon, module)


def _eager_falcon(module: Any, states: Tensor, *args: Any, **options: Any) -> Any:
    mask = options.get("attention_mask")
    if options.get("alibi") is not None and mask is not None:
        visible = mask > torch.finfo(mask.dtype).min / 2
        options["attention_mask"] = mask.masked_fill(visible, 0)
    return type(module).forward(module, states, *args, **options)
