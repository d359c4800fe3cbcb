"""Where the layouts of transformers keep a layer's Q, K, V and O matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headscope.errors import ModelError
from headscope.models.layout import Layout

_Matrices = list[Float[Tensor, "..."]]


def attention_matrices(attention: nn.Module, stated: Layout) -> list[Float[Tensor, ...]]:
    """The matrices of an attention module that its twin shuffles, as views into its weights.

    Q, K, V and O; of multi-head latent attention (DeepSeek-V2, 2.1) the factors of the first three
    and O, each as a matrix of its own.

    Raises:
        ModelError: see `projections`.
    """
    if not hasattr(attention, _LATENT[-1]):
        return projections(attention, stated)
    factors: list[Any] = [getattr(attention, name, None) for name in _LATENT]
    out: Any = output_projection(attention)
    return [each.weight.data for each in (*factors, out) if each is not None]


def projections(attention: nn.Module, stated: Layout) -> list[Float[Tensor, ...]]:
    """The Q, K, V and O matrices of an attention module, as views into its weights.

    Args:
        attention: a layer's attention.
        stated: what the configuration says of it.

    Raises:
        ModelError: no layout is known that keeps these matrices there, or one of them has another
            shape than heads × width.
    """
    out: Any = output_projection(attention)
    for name, read in _READERS.items():
        if hasattr(attention, name) or type(attention).__name__ == name:
            found = [*read(attention, stated), out.weight.data]
            check_shapes(found, stated, type(attention).__name__)
            return found
    raise ModelError(f"no Q, K and V matrices known for {type(attention).__name__}")


def output_projection(attention: nn.Module) -> nn.Module:
    """The module of W_O: what goes in is every head's output z, side by side.

    Raises:
        ModelError: none is known.
    """
    for name in ("c_proj", "dense", "o_proj", "out_proj", "out_lin", "Wo", "output", "o"):
        found = getattr(attention, name, None)
        found = getattr(found, "dense", found) if name == "output" else found
        if isinstance(found, nn.Module):
            return found
    raise ModelError(f"no output projection known for {type(attention).__name__}")


def check_shapes(matrices: Sequence[Float[Tensor, ...]], stated: Layout, where: str) -> None:
    """Whether Q, K, V and O have a row for every dimension of every head, and no other.

    Args:
        matrices: Q, K and V with d_model as their last axis, and O either way round.
        stated: what the configuration says of them.
        where: they are from, for the message.

    Raises:
        ModelError: one of them has not.
    """
    heads, shared, d_model = stated.heads, stated.key_value_heads, stated.d_model
    for name, matrix, each in zip("QKVO", matrices, (heads, shared, shared, heads), strict=True):
        rows = each * stated.d_head
        last = (rows, d_model) if name == "O" else (d_model,)
        if matrix.numel() != rows * d_model or matrix.shape[-1] not in last:
            raise ModelError(
                f"{where}: its {name} matrix has the shape {tuple(matrix.shape)}, but the "
                f"configuration says {each} heads × {stated.d_head} dimensions, and {d_model} "
                "of the residual stream"
            )


def _beside(attention: Any, stated: Layout) -> _Matrices:
    """GPT-2 keeps all queries before all keys and values, transposed; StarCoder not transposed."""
    weight = attention.c_attn.weight.data
    if isinstance(attention.c_attn, Conv1D):
        weight = weight.T
    elif stated.key_value_heads == stated.heads:
        return _split_by_head(weight, stated)  # StarCoder's layout without shared keys
    shared = stated.key_value_heads * stated.d_head
    return list(_split(weight, (stated.heads * stated.d_head, shared, shared)))


def _by_head(attention: Any, stated: Layout) -> _Matrices:
    return _split_by_head(attention.query_key_value.weight.data, stated)


def _stacked(attention: Any, stated: Layout) -> _Matrices:
    """All queries before all keys before all values: MPT and Phi-3."""
    stack = attention.Wqkv if hasattr(attention, "Wqkv") else attention.qkv_proj
    weight = stack.weight.data
    shared = stated.key_value_heads * stated.d_head
    return list(_split(weight, (stated.heads * stated.d_head, shared, shared)))


def _in_quarters(attention: Any, stated: Layout) -> _Matrices:
    """CodeGen keeps four parts, as many as it was trained on, each with queries, values, keys."""
    weight = attention.qkv_proj.weight.data
    parts = weight.view(CODEGEN_PARTS, 3, -1, weight.shape[1])
    return [parts[:, 0], parts[:, 2], parts[:, 1]]


def _separate(attention: Any, stated: Layout) -> _Matrices:
    """Qwen3-Next keeps the gate of each head's output behind its queries."""
    parts = attention.q_proj, attention.k_proj, attention.v_proj
    query, key, value = (each.weight.data for each in parts)
    rows = stated.heads * stated.d_head
    gated = output_projection(attention).weight.shape[1] == rows  # type: ignore[index]
    if gated and len(query) == 2 * rows:
        query = query.view(stated.heads, 2, stated.d_head, -1)[:, 0]
    return [query, key, value]


def _bert(attention: Any, stated: Layout) -> _Matrices:
    own = attention.self
    return [m.weight.data for m in (own.query, own.key, own.value)]


def _distilbert(attention: Any, stated: Layout) -> _Matrices:
    return [m.weight.data for m in (attention.q_lin, attention.k_lin, attention.v_lin)]


def _single_letters(attention: Any, stated: Layout) -> _Matrices:
    """T5's names."""
    return [m.weight.data for m in (attention.q, attention.k, attention.v)]


def _split_by_head(weight: Float[Tensor, "rows d_model"], stated: Layout) -> _Matrices:
    """Each key head's queries, its key and its value: GPT-NeoX, BLOOM, Falcon, Persimmon."""
    shared, width = stated.key_value_heads, stated.d_head
    group = stated.heads // shared + 2
    _split(weight, (shared * group * width,))
    each = weight.view(shared, group, width, weight.shape[1])
    return [each[:, :-2].squeeze(1), each[:, -2], each[:, -1]]


def _split(weight: Float[Tensor, "rows d_model"], rows: tuple[int, ...]) -> tuple[Tensor, ...]:
    if len(weight) != sum(rows):
        raise ModelError(
            f"a matrix of Q, K and V has {len(weight)} rows, but the configuration says "
            f"{' + '.join(map(str, rows))}"
        )
    return torch.split(weight, list(rows))


_READERS: dict[str, Callable[[Any, Layout], _Matrices]] = {
    "CodeGenAttention": _in_quarters,
    "Wqkv": _stacked,
    "qkv_proj": _stacked,
    "c_attn": _beside,
    "query_key_value": _by_head,
    "q_proj": _separate,
    "q_lin": _distilbert,
    "self": _bert,
    "relative_attention_num_buckets": _single_letters,
}
"""How Q, K and V are read, by the name of the module that holds them or the first of them, or by
the class of the attention where that name says too little."""
_LATENT = ("q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
"""The factors of latent attention's matrices; those that a layer has, the last one always."""
CODEGEN_PARTS = 4
