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
    if hasattr(own, "c_attn"):
        return [*own.c_attn.weight.data.T.chunk(3), own.c_proj.weight.data]
    if hasattr(own, "query_key_value") and hasattr(own, "dense"):
        return [*_by_head(own), own.dense.weight.data]
    if hasattr(own, "q_proj"):
        out = own.o_proj if hasattr(own, "o_proj") else own.out_proj
        return [m.weight.data for m in (own.q_proj, own.k_proj, own.v_proj, out)]
    raise ModelError(f"no Q, K, V and O matrices known for {type(own).__name__}")


def _by_head(attention: Any) -> list[Float[Tensor, "head width in"]]:
    fused = attention.query_key_value.weight.data
    width = attention.head_size
    return list(fused.view(-1, 3, width, fused.shape[1]).unbind(1))
