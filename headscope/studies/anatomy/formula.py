"""Parameters by formula: what a configuration's numbers say that a model must hold."""

from __future__ import annotations

from dataclasses import dataclass

from headscope.studies.anatomy.dimensions import Dimensions


@dataclass(frozen=True)
class Formula:
    """A part's formula in words, and its value; None where the layout is not known."""

    part: str
    text: str
    value: int | None


def layer_formulas(d: Dimensions) -> list[Formula]:
    """The parts of one layer, its total last; every layer is the same."""
    wide, narrow = d.heads * d.d_head, d.key_value_heads * d.d_head
    layout = d.layout
    weights = [
        Formula("W_Q", "d_model × heads × d_head", d.d_model * wide),
        Formula("W_K", "d_model × KV heads × d_head", d.d_model * narrow),
        Formula("W_V", "d_model × KV heads × d_head", d.d_model * narrow),
        Formula("W_O", "heads × d_head × d_model", wide * d.d_model),
    ]
    qkv, o = (layout.qkv_bias, layout.o_bias) if layout else (None, None)
    biases = [
        _bias("b_Q", "heads × d_head", wide, qkv),
        _bias("b_K", "KV heads × d_head", narrow, qkv),
        _bias("b_V", "KV heads × d_head", narrow, qkv),
        _bias("b_O", "d_model", d.d_model, o),
    ]
    attention = [
        *weights,
        _sum("attention weights", "W_Q + W_K + W_V + W_O", weights),
        *biases,
        _sum("attention biases", "b_Q + b_K + b_V + b_O", biases),
    ]
    rest = [*_feed_forward(d), _norms(d, "norms")]
    total = _sum("layer", "weights + biases + norms", [*weights, *biases, *rest])
    return [*attention, *rest, total]


def model_formulas(d: Dimensions) -> list[Formula]:
    """The parts of the whole model, its total last."""
    layer = layer_formulas(d)[-1].value
    parts = [
        Formula("all layers", "layers × layer", None if layer is None else d.layers * layer),
        Formula("embedding", "vocabulary × d_model", d.vocabulary * d.d_model),
        _positions(d),
        _unembedding(d),
        _norms(d, "final norm"),
    ]
    return [*parts, _sum("total", "all of the above", parts)]


def _bias(part: str, text: str, size: int, has: bool | None) -> Formula:
    if has is None:
        return Formula(part, "?", None)
    return Formula(part, text if has else "none", size if has else 0)


def _feed_forward(d: Dimensions) -> list[Formula]:
    weights, biases = "feed-forward weights", "feed-forward biases"
    if d.layout is None or d.d_ff is None:
        return [Formula(weights, "?", None), Formula(biases, "?", None)]
    matrices = d.layout.feed_forward_matrices
    inner = matrices - 1  # all but the last matrix lead to d_ff
    words = "d_ff + d_model" if inner == 1 else f"{inner} × d_ff + d_model"
    return [
        Formula(weights, f"{matrices} × d_model × d_ff", matrices * d.d_model * d.d_ff),
        _bias(biases, words, inner * d.d_ff + d.d_model, d.layout.feed_forward_bias),
    ]


def _norms(d: Dimensions, part: str) -> Formula:
    if d.layout is None:
        return Formula(part, "?", None)
    vectors = d.layout.norm_vectors if part == "norms" else d.layout.final_norm_vectors
    return Formula(part, f"{vectors} × d_model" if vectors > 1 else "d_model", vectors * d.d_model)


def _positions(d: Dimensions) -> Formula:
    if d.layout is None:
        return Formula("positions", "?", None)
    if not d.layout.learned_positions or d.context is None:
        return Formula("positions", "none", 0)
    return Formula("positions", "context × d_model", d.context * d.d_model)


def _unembedding(d: Dimensions) -> Formula:
    if d.tied:
        return Formula("unembedding", "the embedding again", 0)
    if d.layout is None:  # some have a bias here
        return Formula("unembedding", "?", None)
    return Formula("unembedding", "d_model × vocabulary", d.d_model * d.vocabulary)


def _sum(part: str, text: str, parts: list[Formula]) -> Formula:
    values = [each.value for each in parts if each.value is not None]
    return Formula(part, text, sum(values) if len(values) == len(parts) else None)
