"""Where the layouts of transformers keep a layer's Q, K, V and O matrices."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from headscope.errors import ModelError


def projections(attention: nn.Module) -> list[Float[Tensor, ...]]:
    """The Q, K, V and O matrices of an attention module, as views into its weights.

    GPT-2 keeps three side by side in `c_attn`, all transposed; GPT-NeoX keeps them head by head in
    `query_key_value`; most others have four modules.

    Raises:
        ModelError: the module has none of these layouts.
    """
    own: Any = attention
    out: Any = output_projection(attention)
    if hasattr(own, "c_attn"):
        return [*own.c_attn.weight.data.T.chunk(3), out.weight.data]
    if hasattr(own, "query_key_value"):
        return [*_by_head(own), out.weight.data]
    if hasattr(own, "q_proj"):
        return [m.weight.data for m in (own.q_proj, own.k_proj, own.v_proj, out)]
    raise ModelError(f"no Q, K and V matrices known for {type(own).__name__}")


def output_projection(attention: nn.Module) -> nn.Module:
    """The module of W_O: what goes in is every head's output z, side by side.

    Raises:
        ModelError: none is known.
    """
    for name in ("c_proj", "dense", "o_proj", "out_proj"):
        found = getattr(attention, name, None)
        if isinstance(found, nn.Module):
            return found
    raise ModelError(f"no output projection known for {type(attention).__name__}")


def _by_head(attention: Any) -> list[Float[Tensor, "head width in"]]:
    fused = attention.query_key_value.weight.data
    width = attention.head_size
    return list(fused.view(-1, 3, width, fused.shape[1]).unbind(1))
