"""Parameters of each part: what a configuration's numbers say that it must hold, by a formula that
is text and is computed as it stands, and what its tensors hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from headscope.studies.anatomy.anatomy_dimensions import Dimensions

if TYPE_CHECKING:  # it reads checkpoints, and so needs torch, which the published shapes do not
    from headscope.studies.anatomy.tensor_counts import TensorCounts

SUMS = {
    "attention weights": "W_Q + W_K + W_V + W_O",
    "attention biases": "b_Q + b_K + b_V + b_O",
    "weights": "attention weights + feed-forward weights",
    "biases": "attention biases + feed-forward biases",
    "all of the above": "all layers + embedding + positions + unembedding + final norm",
}
"""Parts that are the sums of others."""
_UNLISTED = ("weights", "biases", "all of the above")
IN_THE_MODEL = ("all layers", *SUMS["all of the above"].split(" + "), "total")
"""Parts of the whole model; all others are a layer's."""
_NUMBERS = {"none": 0, "the embedding again": 0, "?": None}
_WEIGHT_OF = {
    **{f"b_{letter}": f"W_{letter}" for letter in "QKVO"},
    "feed-forward biases": "feed-forward weights",
}
"""A part that may rightly be absent, and the part without which its absence says nothing."""
_LISTED = 4


@dataclass(frozen=True)
class Formula:
    """A part's formula in words, and its value; None where the layout is not known."""

    text: str
    value: int | None


@dataclass(frozen=True)
class Parameters:
    """The parameters of one part, by formula from the configuration and as counted from tensors."""

    part: str
    layers: str
    """`each`, a range such as `0-4`, or empty for a part of the whole model."""
    formula: str
    by_formula: int | None
    """None where no formula is known for this model type."""
    counted: int | None
    """None where no tensor's name was recognised as this part."""

    @property
    def agrees(self) -> bool | None:
        """True where formula and count are equal; None where one of them is missing."""
        if self.by_formula is None or self.counted is None:
            return None
        return self.by_formula == self.counted


def formulas(d: Dimensions) -> dict[str, Formula]:
    """By part: those of one layer, its total last, as every layer is the same; then the model's."""
    sizes: dict[str, int | None] = {
        "layers": d.layers,
        "heads": d.heads,
        "KV heads": d.key_value_heads,
        "d_model": d.d_model,
        "d_head": d.d_head,
        "d_ff": d.d_ff,
        "vocabulary": d.vocabulary,
        "context": d.context,
        **_NUMBERS,
    }
    texts = _texts(d)
    for part, text in texts.items():
        sizes[part] = evaluate(text, sizes)
    return {part: Formula(texts[part], sizes[part]) for part in texts if part not in _UNLISTED}


def evaluate(formula: str, sizes: Mapping[str, int | None]) -> int | None:
    """The value of a sum of products of sizes; None where one of them is None.

    >>> evaluate("2 × d_ff + d_model", {"d_ff": 8, "d_model": 3})
    19
    """
    total = 0
    for term in formula.split(" + "):
        factors = [int(name) if name.isdigit() else sizes[name] for name in term.split(" × ")]
        known = [factor for factor in factors if factor is not None]
        if len(known) < len(factors):
            return None
        total += prod(known)
    return total


def parameter_rows(dimensions: Dimensions, counts: TensorCounts) -> tuple[Parameters, ...]:
    """The parts of a layer, then those of the whole model.

    A part that differs between layers gets a row for each of its sizes.
    """
    rows: list[Parameters] = []
    for part, formula in formulas(dimensions).items():
        if part not in IN_THE_MODEL:
            rows += _layer_rows(part, formula, counts)
            continue
        # zero means none where none is expected, and otherwise that no name was recognised
        size = counts.model[part]
        counted = None if size == 0 and formula.value != 0 else size
        rows.append(Parameters(part, "", formula.text, formula.value, counted))
    return tuple(rows)


def remarks(dimensions: Dimensions, counts: TensorCounts, model_type: str) -> tuple[str, ...]:
    """Remarks that the numbers lack: fused tensors, unknown names, layers that are missing."""
    lines = []
    if counts.fused:
        lines.append(
            "W_Q, W_K and W_V lie in one tensor, split here as heads : KV heads : KV heads"
        )
    if len(counts.layers) != dimensions.layers:
        lines.append(
            f"the configuration says {dimensions.layers} layers, "
            f"the tensors are of {len(counts.layers)}"
        )
    without = [
        index
        for index, weights in counts.layers.items()
        if not any(weights[f"W_{letter}"] for letter in "QKVO")
    ]
    if 0 < len(without) < len(counts.layers):
        lines.append(
            f"no attention was recognised in layers {_ranges(without)}; "
            "the cache is reckoned as if every layer had it"
        )
    if dimensions.tensors is None:
        lines.append(
            f"model type {model_type}: no formula is known for its biases, norms and feed-forward, "
            "which are only counted"
        )
    if counts.unrecognised:
        lines.append(f"not recognised, counted in the totals alone: {_listed(counts.unrecognised)}")
    if counts.left_out:
        lines.append(
            f"not counted: {_listed(counts.left_out)} (stored, but masks or a tied tensor again)"
        )
    return tuple(lines)


def _texts(d: Dimensions) -> dict[str, str]:
    """Formulas by part; a part stands before the sums that it is in."""
    qkv = o = feed_forward = positions = None
    weights = biases = norms = final_norm = "?"
    if (t := d.tensors) is not None:
        qkv, o, positions = t.qkv_bias, t.o_bias, t.learned_positions and d.context is not None
        norms, final_norm = _vectors(t.norm_vectors), _vectors(t.final_norm_vectors)
        if d.d_ff is not None:
            inner = t.feed_forward_matrices - 1  # all but the last matrix lead to d_ff
            feed_forward = t.feed_forward_bias
            weights = f"{t.feed_forward_matrices} × d_model × d_ff"
            biases = "d_ff + d_model" if inner == 1 else f"{inner} × d_ff + d_model"
    unembedding = "the embedding again" if d.tied else "?" if t is None else "d_model × vocabulary"
    return {
        "W_Q": "d_model × heads × d_head",
        "W_K": "d_model × KV heads × d_head",
        "W_V": "d_model × KV heads × d_head",
        "W_O": "heads × d_head × d_model",
        "attention weights": SUMS["attention weights"],
        "b_Q": _if(qkv, "heads × d_head"),
        "b_K": _if(qkv, "KV heads × d_head"),
        "b_V": _if(qkv, "KV heads × d_head"),
        "b_O": _if(o, "d_model"),
        "attention biases": SUMS["attention biases"],
        "feed-forward weights": weights,
        "feed-forward biases": _if(feed_forward, biases),
        "norms": norms,
        "weights": SUMS["weights"],
        "biases": SUMS["biases"],
        "layer": "weights + biases + norms",
        "all layers": "layers × layer",
        "embedding": "vocabulary × d_model",
        "positions": _if(positions, "context × d_model"),
        "unembedding": unembedding,
        "final norm": final_norm,
        "all of the above": SUMS["all of the above"],
        "total": "all of the above",
    }


def _if(has: bool | None, text: str) -> str:
    return "?" if has is None else text if has else "none"


def _vectors(count: int) -> str:
    return f"{count} × d_model" if count > 1 else "d_model"


def _layer_rows(part: str, formula: Formula, counts: TensorCounts) -> Iterable[Parameters]:
    sizes = {index: _size(part, counts, index) for index in counts.layers}
    distinct = list(dict.fromkeys(sizes.values())) or [None]
    for size in distinct:
        layers = [index for index, layer_size in sizes.items() if layer_size == size]
        label = _ranges(layers) if len(distinct) > 1 else "each"
        yield Parameters(part, label, formula.text, formula.value, size)


def _size(part: str, counts: TensorCounts, layer: int) -> int | None:
    """A part's size in a layer; None where no tensor of any layer was recognised as it."""
    if part in SUMS:
        names = SUMS[part].split(" + ")
        return evaluate(SUMS[part], {name: _size(name, counts, layer) for name in names})
    needed = _WEIGHT_OF.get(part, part)
    if not any(weights[needed] for weights in counts.layers.values()):
        return None
    return counts.layers[layer][part]


def _ranges(numbers: list[int]) -> str:
    """`0-3, 5` for 0, 1, 2, 3, 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def _listed(names: tuple[str, ...]) -> str:
    unlisted = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {unlisted} more" if unlisted > 0 else "")
