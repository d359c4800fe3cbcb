"""Where a model's parameters are, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from headscope.views.summary import short_title

if TYPE_CHECKING:
    from headscope.studies.anatomy.result import Anatomy

_IN_LAYERS = ("attention weights", "feed-forward weights")
_SUMS = ("total", "all layers")


def parameters_figure(anatomy: Anatomy) -> Figure:
    """A bar per part of the whole model, the matrices of all layers together."""
    sizes: dict[str, int] = {}
    layers = anatomy.dimensions.layers
    for row in anatomy.parameter_rows:
        size = row.by_formula if row.counted is None else row.counted
        if row.layers == "each" and row.part in _IN_LAYERS and size:
            sizes[f"{row.part}, {layers} layers"] = size * layers
        elif row.layers == "" and row.part not in _SUMS and size:
            sizes[row.part] = size
    figure = Figure(figsize=(5.6, 1 + 0.35 * len(sizes)), layout="constrained")
    axes = figure.subplots()
    axes.barh(list(sizes), list(sizes.values()), color="#0072b2")
    axes.invert_yaxis()
    axes.set_xlabel("parameters")
    axes.tick_params(labelsize=7)
    axes.set_title(short_title(anatomy.model), fontsize=9)
    return figure
