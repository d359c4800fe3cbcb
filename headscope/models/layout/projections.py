"""W_Q, W_K, W_V and W_O of each layer: the modules that hold them, taken apart, and the layers
around them.

Modules are found by their names, whatever the model type. Norms and masks have no names here: a
norm is recognised by what it computes (`direct_paths.py`), and a mask comes with every call of a
layer's attention (`engines/attention.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from headscope.errors import ModelError
from headscope.models.layout.dimensions import AttentionDimensions

UNNUMBERED = "DistilBertSelfAttention"
"""Class of attention that is not told the number of its layer."""
_Matrices = list[Float[Tensor, "..."]]
_Rows = Float[Tensor, "row _"]


def _separate(rows: list[_Rows], dimensions: AttentionDimensions) -> _Matrices:
    """A matrix each; Qwen3-Next keeps the gate of each head's output behind its queries."""
    query, key, value = rows
    if len(query) == 2 * dimensions.heads * dimensions.d_head:
        query = query.view(dimensions.heads, 2, dimensions.d_head, -1)[:, 0]
    return [query, key, value]


def _in_blocks(rows: list[_Rows], dimensions: AttentionDimensions) -> _Matrices:
    """All queries before all keys before all values."""
    shared = dimensions.key_value_heads * dimensions.d_head
    return list(torch.split(rows[0], [dimensions.heads * dimensions.d_head, shared, shared]))


def _in_four_parts(rows: list[_Rows], dimensions: AttentionDimensions) -> _Matrices:
    """A quarter of the queries, values and keys at a time."""
    query, value, key = rows[0].view(4, 3, -1, rows[0].shape[1]).unbind(1)
    return [query, key, value]


def _by_key_head(rows: list[_Rows], dimensions: AttentionDimensions) -> _Matrices:
    """Each key head's queries, its key and its value."""
    (weight,) = rows
    key_heads = dimensions.key_value_heads
    queries_per_key = dimensions.heads // key_heads
    # of each key head its queries, the key and the value
    groups = weight.view(key_heads, queries_per_key + 2, dimensions.d_head, weight.shape[1])
    query = groups[:, :-2].squeeze(1)
    return [query, groups[:, -2], groups[:, -1]]


@dataclass(frozen=True)
class Projections:
    """Modules of a layer's attention that hold W_Q, W_K and W_V."""

    modules: tuple[str, ...]
    """Attributes of the attention, for Q, K and V or for the one that holds all three."""
    split: Callable[[list[_Rows], AttentionDimensions], _Matrices] = _separate
    """Takes the rows of these modules apart."""
    attention: str = ""
    """Name of the only class of attention with this form; empty for any class."""

    def fits(self, attention: nn.Module) -> bool:
        """Test if an attention module holds these modules."""
        is_class = self.attention in ("", type(attention).__name__)
        return is_class and all(_has(attention, name) for name in self.modules)


FORMS = (
    Projections(("q_proj", "k_proj", "v_proj")),
    Projections(("self.query", "self.key", "self.value")),  # BERT
    Projections(("self.query_proj", "self.key_proj", "self.value_proj")),  # DeBERTa-v2
    Projections(("query", "key", "value")),  # ALBERT
    Projections(("Wq", "Wk", "Wv")),  # CTRL
    Projections(("attn.q", "attn.k", "attn.v")),  # MPNet
    Projections(("query_key_value",), _by_key_head),  # GPT-NeoX
    Projections(("q_lin", "k_lin", "v_lin")),  # DistilBERT
    Projections(("c_attn",), _in_blocks),  # GPT-2, StarCoder
    Projections(("qkv_proj",), _in_four_parts, "CodeGenAttention"),
    Projections(("qkv_proj",), _in_blocks),  # Phi-3
    Projections(("Wqkv",), _in_blocks),  # MPT, ModernBERT
)
"""Places of W_Q, W_K and W_V; the first that fits an attention module."""
FACTORS = ("q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
"""Factors of latent attention (DeepSeek-V2, 2.1) that a layer may have, the last one always."""
_QUERY, _KEY = "q_proj", "k_proj"
OUTPUTS = ("o_proj", "output.dense", "out_proj", "dense", "out_lin", "c_proj", "Wo", "attn.o")
"""Places of W_O within the attention; BERT's within the parent of its attention."""


def attention_modules(network: Any) -> list[nn.Module]:
    """The modules that hold a layer's attention, in the order of the layers."""
    modules = [
        module
        for module in network.modules()
        if getattr(module, "layer_idx", None) is not None and hasattr(module, "is_causal")
    ]
    return sorted(modules, key=lambda module: module.layer_idx)


def attention_by_layer(network: Any) -> dict[int, Any]:
    """The modules that hold a layer's attention by the numbers of their layers in the model."""
    modules: list[Any] = attention_modules(network)
    return {module.layer_idx: module for module in modules}


def layers_without_softmax(network: Any, layers: int) -> tuple[int, ...]:
    """Layers of a hybrid whose tokens mix by convolutions, or by states that they update.

    Returns:
        The numbers of those layers that hold no softmax attention while others do.
    """
    others = {*range(layers)} - attention_by_layer(network).keys()
    return tuple(sorted(others)) if len(others) < layers else ()


def projection_modules(network: nn.Module) -> list[nn.Module]:
    """The modules that hold Q, K, V and O: BERT keeps O in the parent of its attention."""
    parents: dict[int, nn.Module] = {}
    for module in network.modules():
        attention = getattr(module, "self", None)
        if isinstance(attention, nn.Module) and hasattr(getattr(module, "output", None), "dense"):
            parents[id(attention)] = module
    return [parents.get(id(module), module) for module in attention_modules(network)]


def projection_holder(network: nn.Module, name: str) -> nn.Module | None:
    """The innermost module around a module of this name that holds Q, K, V and O; None if unknown.

    Args:
        network: the module that the name begins at.
        name: such as `encoder.layer.0.attention.self.dropout`.
    """
    while name:
        module = network.get_submodule(name)
        has_inputs = _form_of(module) is not None or _has(module, _QUERY)
        if has_inputs and any(_has(module, output) for output in OUTPUTS):
            return module
        name = name.rpartition(".")[0]
    return None


def layer_list(network: nn.Module, layers: int) -> nn.ModuleList:
    """The list of layers: the one whose members hold the attention of their numbers.

    Layers without softmax attention are in it and count among `layers`.

    Raises:
        ModelError: there is no such list.
    """
    attention = attention_by_layer(network)
    for module in network.modules():
        if not isinstance(module, nn.ModuleList) or len(module) != layers:
            continue
        if all(inner in set(module[layer].modules()) for layer, inner in attention.items()):
            return module
    raise ModelError("no list of layers with one attention each")


def block_input(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
    """The stream that a block or an attention module reads, however it is handed on."""
    stream: Tensor = arguments[0] if arguments else keywords["hidden_states"]
    return stream


def number_layers(network: nn.Module) -> None:
    """Give each attention the number of its layer if the layout does not (DistilBERT)."""
    unnumbered = [m for m in network.modules() if type(m).__name__ == UNNUMBERED]
    for layer, module in enumerate(unnumbered):
        setattr(module, "layer_idx", layer)  # noqa: B010


def projections(attention: nn.Module, dimensions: AttentionDimensions) -> _Matrices:
    """The Q, K, V and O matrices of an attention module, as views into its weights.

    Of multi-head latent attention (DeepSeek-V2, 2.1) the factors of the first three and O, each as
    a matrix of its own.

    Raises:
        ModelError: no layout is known that keeps these matrices there.
    """
    output: Any = output_projection(attention)
    if _has(attention, FACTORS[-1]):
        factors: list[Any] = [getattr(attention, name, None) for name in FACTORS]
        return [factor.weight.data for factor in (*factors, output) if factor is not None]
    if _form_of(attention) is None and _has(attention, _QUERY):
        # Gemma 3n and 4: layers share the keys and values of one before, or values are the keys
        matrices = [_QUERY, _KEY] if _has(attention, _KEY) else [_QUERY]
        rows = [weight_rows(attention.get_submodule(matrix)) for matrix in matrices]
        return [*rows, output.weight.data]
    return [*input_projections(attention, dimensions), output.weight.data]


def input_projections(attention: nn.Module, dimensions: AttentionDimensions) -> _Matrices:
    """The Q, K and V matrices, which read the attention's input, as views into its weights.

    Raises:
        ModelError: no layout is known that keeps these matrices there, as in latent attention.
    """
    form = _known_form(attention)
    rows = [weight_rows(attention.get_submodule(name)) for name in form.modules]
    # the heads of Gemma 4's layers have two widths
    width: Any = getattr(attention, "head_dim", dimensions.d_head)
    return form.split(rows, replace(dimensions, d_head=width))


def projection_names(attention: nn.Module) -> list[str]:
    """Names of the modules in an attention that hold Q, K, V and O or factors of them, as far as
    they are known.
    """
    form = _form_of(attention)
    inputs = () if form is None else form.modules
    factors = [name for name in FACTORS if _has(attention, name)]
    output = [name for name in OUTPUTS if _has(attention, name)][:1]
    return list(dict.fromkeys([*inputs, *factors, *output]))


def input_biases(attention: nn.Module, dimensions: AttentionDimensions) -> _Matrices:
    """The biases of Q, K and V as matrices of one column, views in place; empty without biases.

    Raises:
        ModelError: as of `input_projections`.
    """
    form = _known_form(attention)
    biases: list[Any] = [
        getattr(attention.get_submodule(name), "bias", None) for name in form.modules
    ]
    if any(bias is None for bias in biases):
        return []
    columns = [bias.data[:, None] for bias in biases]
    return form.split(columns, dimensions)


def _known_form(attention: nn.Module) -> Projections:
    """The place of W_Q, W_K and W_V.

    Raises:
        ModelError: no layout is known that keeps these matrices there, as in latent attention.
    """
    form = _form_of(attention)
    if form is None:
        raise ModelError(f"no Q, K and V matrices known for {type(attention).__name__}")
    return form


def output_projection(attention: nn.Module) -> nn.Module:
    """The module of W_O: what goes in is every head's output z, side by side.

    Raises:
        ModelError: none is known.
    """
    for name in OUTPUTS:
        if _has(attention, name):
            return attention.get_submodule(name)
    raise ModelError(f"no output projection known for {type(attention).__name__}")


def outputs_by_layer(network: nn.Module) -> dict[int, nn.Module]:
    """The modules of W_O by the numbers of their layers in the model.

    Raises:
        ModelError: two layers share one of them; or see `output_projection`.
    """
    outputs: dict[int, nn.Module] = {}
    holders = zip(attention_by_layer(network), projection_modules(network), strict=True)
    for layer, holder in holders:
        output = output_projection(holder)
        # a hook on a shared module would change both layers
        shared = [other for other, module in outputs.items() if module is output]
        if shared:
            raise ModelError(
                f"layers {shared[0]} and {layer} share one output projection (W_O); heads are "
                "changed only in models whose layers have one each"
            )
        outputs[layer] = output
    return outputs


def output_matrix(output: nn.Module) -> Float[Tensor, "head_d_value d_model"]:
    """W_O as z meets it from the left, in place."""
    return weight_rows(output).T


def weight_rows(linear: Any) -> _Rows:
    """A weight with a row for each number that comes out; GPT-2's Conv1D keeps the transpose."""
    weight: Tensor = linear.weight.data
    return weight.T if isinstance(linear, Conv1D) else weight


def _form_of(attention: nn.Module) -> Projections | None:
    return next((form for form in FORMS if form.fits(attention)), None)


def _has(attention: nn.Module, name: str) -> bool:
    try:
        attention.get_submodule(name)
    except AttributeError:
        return False
    return True
