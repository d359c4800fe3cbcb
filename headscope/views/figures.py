"""Pictures for papers. Every function returns a matplotlib figure and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from headscope.errors import PatternError
from headscope.heads import head_name
from headscope.printing import visible
from headscope.relations.relation import MIN_QUERIES
from headscope.statistics.head_lists import best_heads
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import NO_TYPE, UNCLASSIFIED, UNIDENTIFIABLE
from headscope.views.colours import colour, is_sink_type, legend_groups, letter
from headscope.views.figure_style import outside_legend

if TYPE_CHECKING:
    from headscope.views.show import AttentionView


MOST_TOKENS = 200  # labels of more could not be read
_FAINT, _FULL = 0.2, 0.75  # how much of its colour a head with a lift of 0 and of 1 has
_SINK_SHADE = 0.4  # of the grey of attention sinks: darker than no type, paler than any type
_INK, _DIM = "black", "#8a8a94"


def atlas_figure(run: Result) -> Figure:
    """Layers × heads, each cell its primary type's colour and letter, shaded by its lift.

    A head that is only a sink is pale whatever its lift. One that the text cannot tell from a
    baseline has a dashed frame.
    """
    layers, heads = len(layers_of(run)), int(run.heads["head"].max()) + 1
    figure = Figure(figsize=(2 + heads * 0.32, 1.6 + layers * 0.3), layout="constrained")
    axes = figure.subplots()
    draw_atlas(axes, run)
    axes.set_title(short_title(run.name), fontsize=9)
    type_legend(axes, [*_types(run), *_untyped(run)])
    return figure


def draw_atlas(axes: Axes, run: Result) -> None:
    """The cells of an atlas with their layers and heads, without title and legend."""
    layers, heads = layers_of(run), int(run.heads["head"].max()) + 1
    row_of_layer = {layer: number for number, layer in enumerate(layers)}
    image = np.ones((len(layers), heads, 3))
    for row, name in zip(run.heads.itertuples(), run.heads["primary"], strict=True):
        strength = _FAINT + (_FULL - _FAINT) * float(np.clip(row.lift, 0, 1))
        strength = _SINK_SHADE if is_sink_type(name) else 1.0 if name in NO_TYPE else strength
        at = row_of_layer[row.layer]
        image[at, row.head] = 1 - strength * (1 - np.array(to_rgb(colour(name))))
        ink = _DIM if is_sink_type(name) else _INK
        axes.text(row.head, at, letter(name), color=ink, **_CENTRED)
        if name == UNIDENTIFIABLE:
            corner = (row.head - 0.42, at - 0.42)
            axes.add_patch(Rectangle(corner, 0.84, 0.84, **_DASHED))
    axes.imshow(image, aspect="auto")
    axes.set_xticks(range(heads), [str(h) for h in range(heads)], fontsize=7)
    axes.set_yticks(range(len(layers)), [str(layer) for layer in layers], fontsize=7)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")


def layers_figure(run: Result) -> Figure:
    """Stacked bars: heads of each layer by their primary type."""
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    counts = run.heads.groupby(["layer", "primary"]).size().unstack(fill_value=0)
    below = np.zeros(len(counts))
    # functions at the bottom, so that they can be compared; attention sinks and heads without a
    # type above
    groups = legend_groups([*_types(run), *_untyped(run)])
    for name in [name for members in groups.values() for name in members]:
        if name in counts:
            axes.bar(counts.index, counts[name], bottom=below, width=0.85, **_face(name))
            below += counts[name].to_numpy()
    axes.set_xlabel("layer")
    axes.set_ylabel("heads")
    axes.set_title(short_title(run.name), fontsize=9)
    type_legend(axes, [*_types(run), *_untyped(run)])
    return figure


def relations_figure(run: Result, *, most: int = 30) -> Figure:
    """The best head of each relation: mass, control and the interval of the lift."""
    table = run.evidence[run.evidence["n"] >= MIN_QUERIES]
    best = best_heads(table).head(most).iloc[::-1].reset_index(drop=True)
    figure = Figure(figsize=(7.5, 1.2 + 0.26 * len(best)), layout="constrained")
    axes = figure.subplots()
    positions = np.arange(len(best))
    axes.barh(positions, best["mass"], color=[colour(name) for name in best["type"]], height=0.7)
    low = (best["lift"] - best["ci_low"]).clip(lower=0)
    high = (best["ci_high"] - best["lift"]).clip(lower=0)
    axes.errorbar(best["mass"], positions, xerr=[low, high], fmt="none", ecolor="black", lw=1)
    axes.plot(best["control"], positions, "k|", markersize=9, label="control")
    names = [f"{r.type}/{r.relation}  {head_name(r.layer, r.head)}" for r in best.itertuples()]
    axes.set_yticks(positions, names, fontsize=7)
    axes.set_xlim(0, 1)
    axes.set_xlabel("attention on the targets (mass), best head of each relation")
    outside_legend(axes.legend(fontsize=7, loc="lower right"))
    axes.set_title(short_title(run.name), fontsize=9)
    return figure


def pattern_figure(view: AttentionView) -> Figure:
    """A head's pattern on a text as a heat map."""
    size = len(view.tokens)
    if size > MOST_TOKENS:
        raise PatternError(
            f"{view.title}: {size} tokens; a picture shows {MOST_TOKENS} at most (HTML shows all)"
        )
    figure = Figure(figsize=(2 + 0.24 * size, 1.6 + 0.24 * size), layout="constrained")
    axes = figure.subplots()
    hidden = np.triu(np.ones((size, size), bool), 1) & (not view.sees_future)
    axes.imshow(np.ma.array(view.pattern, mask=hidden), cmap="Blues", vmin=0, vmax=1)
    # `$` would start a formula
    names = [visible(token).replace("$", r"\$") for token in view.tokens]
    axes.set_xticks(range(size), names, rotation=90, fontsize=7)
    axes.set_yticks(range(size), names, fontsize=7)
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    axes.set_title(view.title, fontsize=9)
    return figure


FIGURES: dict[str, Callable[[Result], Figure]] = {
    "atlas": atlas_figure,
    "layers": layers_figure,
    "relations": relations_figure,
}


def _types(run: Result) -> list[str]:
    return list(dict.fromkeys(run.evidence["type"]))


def short_title(model: str) -> str:
    """A model's name without its folders; `$` would start a formula of matplotlib."""
    return model.rstrip("/").rsplit("/", 1)[-1].replace("$", r"\$")


_CENTRED: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
_DASHED: dict[str, Any] = {
    "fill": False,
    "edgecolor": _DIM,
    "linestyle": (0, (2, 1.5)),
    "linewidth": 0.9,
}


def type_legend(axes: Axes, types: Sequence[str]) -> None:
    """Legend of the types beside the axes: functions, attention sinks, then no type."""
    handles = []
    groups = legend_groups(types)
    for title, names in groups.items():
        if len(groups) > 1:
            handles.append(Patch(alpha=0, label=title))
        handles += [Patch(**_face(name), label=name) for name in names]
    legend = outside_legend(
        axes.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    )
    for text in legend.get_texts():
        if text.get_text() in groups:
            text.set_fontweight("bold")


def _face(name: str) -> dict[str, Any]:
    """The fill of a type in bars and legends: an attention sink is pale, no answer is hatched."""
    full = np.array(to_rgb(colour(name)))
    face = tuple(1 - _SINK_SHADE * (1 - full)) if is_sink_type(name) else tuple(full)
    hatch = "////" if name == UNIDENTIFIABLE else None
    return {"facecolor": face, "edgecolor": "grey", "linewidth": 0.3, "hatch": hatch}


def _untyped(run: Result) -> list[str]:
    """The names that heads without a type are drawn as; `unclassified` is always shown."""
    primaries = set(run.heads["primary"])
    return [name for name in NO_TYPE if name in primaries or name == UNCLASSIFIED]
