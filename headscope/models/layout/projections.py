"""W_Q, W_K, W_V and W_O of a layer, taken apart as the rows of `table.LAYOUTS` say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headscope.errors import ModelError
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.model_layout import Projections, Split
from headscope.models.layout.modules import projections_by_layer
from headscope.models.layout.table import LAYOUTS

CODEGEN_PARTS = 4
"""Parts of CodeGen's matrix: as many as the devices that it was trained on."""
_Matrices = list[Float[Tensor, "..."]]
_Rows = Float[Tensor, "row _"]
_SplitRows = Callable[[list[Any], list[_Rows], AttentionDimensions], _Matrices]
"""Q, K and V by the modules that hold them, that of W_O last, and the rows of the first ones."""
_rows = {row.projections: None for row in LAYOUTS if row.projections is not None}
_FORMS: tuple[Projections, ...] = tuple(sorted(_rows, key=lambda form: not form.attention_class))
"""Forms with a class first: their modules have the names of others."""
_OUTPUTS = tuple(dict.fromkeys(row.output for row in LAYOUTS))


def projections(attention: nn.Module, dimensions: AttentionDimensions) -> _Matrices:
    """The Q, K, V and O matrices of an attention module, as views into its weights.

    Args:
        attention: a layer's attention, from `modules.projection_modules`.
        dimensions: of the model.

    Raises:
        ModelError: no layout is known that keeps these matrices there, or one of them has another
            shape than heads × width.
    """
    linears, output, split = _linears(attention)
    rows = [_rows_of(linear) for linear in linears]
    matrices = [*split([*linears, output], rows, dimensions), output.weight.data]
    check_shapes(matrices, dimensions, type(attention).__name__)
    return matrices


def attention_weight_views(attention: nn.Module, dimensions: AttentionDimensions) -> _Matrices:
    """The matrices of an attention module that the null model shuffles, as views into its weights.

    Q, K, V and O; of multi-head latent attention (DeepSeek-V2, 2.1) the factors of the first three
    and O, each as a matrix of its own.

    Raises:
        ModelError: see `projections`.
    """
    form = find_projections(attention)
    if form is None or form.split is not Split.FACTORS:
        return projections(attention, dimensions)
    factors: list[Any] = [getattr(attention, name, None) for name in form.modules]
    output: Any = output_projection(attention)
    return [factor.weight.data for factor in (*factors, output) if factor is not None]


def find_projections(attention: nn.Module) -> Projections | None:
    """The form of a layer's Q, K and V matrices; None if none is known."""
    return next((form for form in _FORMS if _fits(form, attention)), None)


def output_projection(attention: nn.Module) -> nn.Module:
    """The module of W_O: what goes in is every head's output z, side by side.

    Raises:
        ModelError: none is known.
    """
    for name in _OUTPUTS:
        if _has(attention, name):
            return attention.get_submodule(name)
    raise ModelError(f"no output projection known for {type(attention).__name__}")


def outputs_by_layer(network: nn.Module) -> dict[int, nn.Module]:
    """The modules of W_O by the numbers of their layers in the model.

    Raises:
        ModelError: two layers share one of them; or see `output_projection`.
    """
    outputs: dict[int, nn.Module] = {}
    for layer, holder in projections_by_layer(network).items():
        output = output_projection(holder)
        shared = [other for other, module in outputs.items() if module is output]
        if shared:
            raise ModelError(
                f"layers {shared[0]} and {layer} share one output projection (W_O); heads are "
                "changed only in models whose layers have one each"
            )
        outputs[layer] = output
    return outputs


def output_matrix(output: nn.Module) -> Float[Tensor, "head_d_value d_model"]:
    """W_O as z meets it from the left, in place.

    Args:
        output: from `output_projection`, or of a TransformerLens bridge.
    """
    linear: Any = getattr(output, "original_component", output)
    weight: Tensor = linear.weight.detach()
    # GPT-2's Conv1D keeps the transpose of what a linear map keeps
    return weight if type(linear).__name__ == "Conv1D" else weight.T


def check_shapes(
    matrices: Sequence[Float[Tensor, ...]], dimensions: AttentionDimensions, source: str
) -> None:
    """Refuse Q, K, V and O that have not one row for every dimension of every head.

    Args:
        matrices: Q, K and V with d_model as their last axis, and O either way round.
        dimensions: of the model.
        source: of them, for the message.

    Raises:
        ModelError: one of them has more rows, or fewer.
    """
    heads, key_heads, d_model = dimensions.heads, dimensions.key_value_heads, dimensions.d_model
    counts = (heads, key_heads, key_heads, heads)
    for name, matrix, count in zip("QKVO", matrices, counts, strict=True):
        rows = count * dimensions.d_head
        last = (rows, d_model) if name == "O" else (d_model,)
        if matrix.numel() != rows * d_model or matrix.shape[-1] not in last:
            raise ModelError(
                f"{source}: its {name} matrix has the shape {tuple(matrix.shape)}, but the "
                f"configuration says {count} heads × {dimensions.d_head} dimensions, and {d_model} "
                "of the residual stream"
            )


def _fits(form: Projections, attention: nn.Module) -> bool:
    if form.attention_class and type(attention).__name__ != form.attention_class:
        return False
    required = form.modules[-1:] if form.split is Split.FACTORS else form.modules
    return all(_has(attention, name) for name in required)


def _has(attention: nn.Module, name: str) -> bool:
    try:
        attention.get_submodule(name)
    except AttributeError:
        return False
    return True


def _linears(attention: nn.Module) -> tuple[list[Any], Any, _SplitRows]:
    """The modules that hold Q, K and V, that of W_O, and the split of the first ones' rows."""
    form = find_projections(attention)
    if form is None or form.split is Split.FACTORS:
        raise ModelError(f"no Q, K and V matrices known for {type(attention).__name__}")
    linears = [attention.get_submodule(name) for name in form.modules]
    return linears, output_projection(attention), _SPLITS[form.split]


def _rows_of(linear: Any) -> _Rows:
    """A weight with a row for each number that comes out; GPT-2's Conv1D keeps the transpose."""
    weight: Tensor = linear.weight.data
    return weight.T if isinstance(linear, Conv1D) else weight


def _separate(linears: list[Any], rows: list[_Rows], dimensions: AttentionDimensions) -> _Matrices:
    """Qwen3-Next keeps the gate of each head's output behind its queries."""
    query, key, value = rows
    z_width = dimensions.heads * dimensions.d_head
    if linears[-1].weight.shape[1] == z_width and len(query) == 2 * z_width:
        query = query.view(dimensions.heads, 2, dimensions.d_head, -1)[:, 0]
    return [query, key, value]


def _in_blocks(_: list[Any], rows: list[_Rows], dimensions: AttentionDimensions) -> _Matrices:
    """All queries before all keys before all values: MPT, Phi-3 and ModernBERT."""
    shared = dimensions.key_value_heads * dimensions.d_head
    sizes = [dimensions.heads * dimensions.d_head, shared, shared]
    _check_rows(rows[0], sizes)
    return list(torch.split(rows[0], sizes))


def _by_key_head(_: list[Any], rows: list[_Rows], dimensions: AttentionDimensions) -> _Matrices:
    """Each key head's queries, its key and its value: GPT-NeoX, BLOOM, Falcon, Persimmon."""
    key_heads, width = dimensions.key_value_heads, dimensions.d_head
    group = dimensions.heads // key_heads + 2  # queries that share a key, the key and the value
    _check_rows(rows[0], [key_heads * group * width])
    groups = rows[0].view(key_heads, group, width, rows[0].shape[1])
    return [groups[:, :-2].squeeze(1), groups[:, -2], groups[:, -1]]


def _in_c_attn(linears: list[Any], rows: list[_Rows], dimensions: AttentionDimensions) -> _Matrices:
    """GPT-2 and StarCoder keep blocks; StarCoder's without shared keys goes by key head."""
    shares_keys = dimensions.key_value_heads < dimensions.heads
    blocks = shares_keys or isinstance(linears[0], Conv1D)
    return (_in_blocks if blocks else _by_key_head)(linears, rows, dimensions)


def _in_codegen(_: list[Any], rows: list[_Rows], __: AttentionDimensions) -> _Matrices:
    """CodeGen keeps four parts, as many as it was trained on, each with queries, values, keys."""
    parts = rows[0].view(CODEGEN_PARTS, 3, -1, rows[0].shape[1])
    return [parts[:, 0], parts[:, 2], parts[:, 1]]


_SPLITS: dict[Split, _SplitRows] = {
    Split.SEPARATE: _separate,
    Split.BLOCKS: _in_blocks,
    Split.BY_KEY_HEAD: _by_key_head,
    Split.C_ATTN: _in_c_attn,
    Split.CODEGEN: _in_codegen,
}


def _check_rows(weight: _Rows, rows: list[int]) -> None:
    if len(weight) != sum(rows):
        raise ModelError(
            f"a matrix of Q, K and V has {len(weight)} rows, but the configuration says "
            f"{' + '.join(map(str, rows))}"
        )
