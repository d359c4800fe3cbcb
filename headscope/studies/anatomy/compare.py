"""Formula and count side by side, a row per part, and what is to be said about them."""

from __future__ import annotations

from collections.abc import Iterable

from headscope.studies.anatomy.count import Counts
from headscope.studies.anatomy.dimensions import Dimensions
from headscope.studies.anatomy.formula import Formula, layer_formulas, model_formulas
from headscope.studies.anatomy.rows import Parameters

SUMS = {
    "attention weights": ("W_Q", "W_K", "W_V", "W_O"),
    "attention biases": ("b_Q", "b_K", "b_V", "b_O"),
}
ALL_WEIGHTS = SUMS["attention weights"]
_WEIGHT_OF = {
    "b_Q": "W_Q",
    "b_K": "W_K",
    "b_V": "W_V",
    "b_O": "W_O",
    "feed-forward biases": "feed-forward weights",
}
"""A part that may rightly be absent, and the part without which its absence says nothing."""
_LISTED = 4


def compare(dimensions: Dimensions, counts: Counts) -> tuple[Parameters, ...]:
    """The parts of a layer, then those of the whole model.

    A part that differs between layers gets a row for each of its sizes.
    """
    layer = [row for f in layer_formulas(dimensions) for row in _layer_rows(f, counts)]
    whole = [
        Parameters(f.part, "", f.text, f.value, _of_the_model(f, counts))
        for f in model_formulas(dimensions)
    ]
    return (*layer, *whole)


def remarks(dimensions: Dimensions, counts: Counts, model_type: str) -> tuple[str, ...]:
    """What the numbers alone do not say: fused tensors, unknown names, layers that are missing."""
    found = []
    if counts.fused:
        found.append(
            "W_Q, W_K and W_V lie in one tensor, split here as heads : KV heads : KV heads"
        )
    if len(counts.layers) != dimensions.layers:
        found.append(
            f"the configuration says {dimensions.layers} layers, "
            f"the tensors are of {len(counts.layers)}"
        )
    without = [i for i, own in counts.layers.items() if not any(own[w] for w in ALL_WEIGHTS)]
    if 0 < len(without) < len(counts.layers):
        found.append(
            f"no attention was recognised in layers {_ranges(without)}; "
            "the cache is reckoned as if every layer had it"
        )
    if dimensions.layout is None:
        found.append(
            f"model type {model_type}: no formula is known for its biases, norms and feed-forward, "
            "which are only counted"
        )
    if counts.unrecognised:
        found.append(f"not recognised, counted in the totals alone: {_listed(counts.unrecognised)}")
    if counts.left_out:
        found.append(
            f"not counted: {_listed(counts.left_out)} (stored, but masks or a tied tensor again)"
        )
    return tuple(found)


def _layer_rows(formula: Formula, counts: Counts) -> Iterable[Parameters]:
    sizes = {index: _size(formula.part, counts, index) for index in counts.layers}
    distinct = dict.fromkeys(sizes.values())
    if len(distinct) <= 1:
        one = next(iter(distinct), None)
        return [Parameters(formula.part, "each", formula.text, formula.value, one)]
    return [
        Parameters(
            formula.part,
            _ranges([i for i, own in sizes.items() if own == size]),
            formula.text,
            formula.value,
            size,
        )
        for size in distinct
    ]


def _size(part: str, counts: Counts, layer: int) -> int | None:
    """A part's size in a layer; None where no tensor of any layer was recognised as it."""
    if part in SUMS:
        sizes = [_size(each, counts, layer) for each in SUMS[part]]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None
    needed = _WEIGHT_OF.get(part, part)
    if not any(own[needed] for own in counts.layers.values()):
        return None
    return counts.layers[layer][part]


def _of_the_model(formula: Formula, counts: Counts) -> int | None:
    """Zero means none where none is expected, and otherwise that no name was recognised."""
    size = counts.model[formula.part]
    return None if size == 0 and formula.value != 0 else size


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
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
