"""Pictures for papers. Every function returns a matplotlib figure and writes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from io import BytesIO
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib import rc_context
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from numpy import ndarray

from headscope.errors import PatternError
from headscope.heads import head_name
from headscope.printing import visible
from headscope.relations.relation import MIN_QUERIES
from headscope.statistics.head_lists import best_heads
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import NO_TYPE, UNCLASSIFIED, UNIDENTIFIABLE
from headscope.views.atlas_cells import atlas_cells, caution_signs, colour_share
from headscope.views.colours import colour, is_sink_type, legend_groups, letter

if TYPE_CHECKING:
    from headscope.views.heads_view import HeadsView
    from headscope.views.show import AttentionView


MOST_TOKENS = 200  # labels of more could not be read
_INK, _DIM = "black", "#8a8a94"
_POINTS = 72  # points of an inch
_SMALL = 6.5  # size of all text in points
_LEAST = 4.0  # size in points below which a letter is omitted: it cannot be read in print
_LETTER = 0.62  # mean width of a letter of DejaVu Sans, as a share of the font size
_LINE = 0.16  # height of a line of text in inches
_MARGIN = 0.55  # width of the names of layers in inches
_TALLEST = 7.0  # maximum height of all layers in inches
_ENTRY = 1.3  # width of the longest entry of a legend in inches

# Publishers accept Type 42 (TrueType) fonts and often refuse Type 3, the default of matplotlib. The
# fixed salt gives equal figures equal bytes
_STYLE: dict[Any, Any] = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "0",
}
_UNDATED = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}


def picture(figure: Figure, suffix: str) -> bytes:
    """A figure as a file's bytes: `.pdf` and `.svg` with text as text, the font embedded in PDF."""
    buffer, kind = BytesIO(), suffix.lower().removeprefix(".")
    with rc_context(_STYLE), warnings.catch_warnings():
        # matplotlib draws a box for a glyph that the font lacks
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format=kind, dpi=200, metadata=_UNDATED.get(kind))
    return buffer.getvalue()


def atlas_figure(run: Result, width: float | None = None) -> Figure:
    """Layers × heads, each cell its primary type's colour and letter, shaded by its lift.

    A head that is only a sink is pale whatever its lift. One that the text cannot tell from a
    baseline has a dashed frame, one whose hit rate is below its baseline's a solid frame. A
    star follows the letter of a preliminary tag. Where letters are drawn, the legend names the
    signs. The width is in inches.
    """
    # letters are drawn if they can be read at this size
    layers = layers_of(run)
    heads = int(run.heads["head"].max()) + 1
    width = width or max(4.0, _MARGIN + heads * 0.32)
    cell_width = (width - _MARGIN) / heads
    cell_height = min(0.3, cell_width, _TALLEST / len(layers))
    signs = caution_signs(run.heads)
    font_size = min(7.0, 0.72 * _POINTS * cell_height)
    has_letters = font_size >= _LEAST
    height = cell_height * len(layers) + _MARGIN + _LINE * len(signs)
    figure = _figure(run, width, height, has_letters=has_letters)
    axes = figure.axes[0]
    row_of_layer = {layer: number for number, layer in enumerate(layers)}
    # cells are an image, letters and frames drawn upon it
    image = np.ones((len(layers), heads, 3))
    for cell in atlas_cells(run):
        at = row_of_layer[cell.layer]
        image[at, cell.head] = _shade(cell.type, cell.share)
        if has_letters:
            ink = _DIM if is_sink_type(cell.type) else _INK
            axes.text(
                cell.head,
                at,
                cell.letter,
                color=ink,
                ha="center",
                va="center",
                fontsize=font_size,
            )
        # a dashed frame for a head that is not identifiable, a solid one below its baseline
        if cell.is_open or cell.is_below_baseline:
            line: dict[str, Any] = {"edgecolor": _INK, "linewidth": font_size / 8}
            if cell.is_open:
                line |= {"edgecolor": _DIM, "linestyle": (0, (2, 1.5))}
            corner = (cell.head - 0.42, at - 0.42)
            axes.add_patch(Rectangle(corner, 0.84, 0.84, fill=False, **line))
    axes.imshow(image, aspect="auto")
    _number(axes.xaxis, list(range(heads)), cell_width * 0.75)
    _number(axes.yaxis, layers, cell_height)
    axes.set_xlabel("\n".join(["head", *signs.values()]), fontsize=_SMALL)
    axes.set_ylabel("layer", fontsize=_SMALL)
    return figure


def _shade(head_type: str, share: float) -> Float[ndarray, " channel"]:
    """The colour of a head type mixed with white."""
    full_colour = np.array(to_rgb(colour(head_type)))
    return np.asarray(1 - share * (1 - full_colour))


def _number(axis: Axis, numbers: list[int], cell: float) -> None:
    """Ticks with as many of some numbers as there is room for, in cells of so many inches."""
    step = ceil(_SMALL * 1.15 / (cell * _POINTS))
    ticks = range(0, len(numbers), step)
    labels = [str(numbers[tick]) for tick in ticks]
    axis.set_ticks(ticks, labels, fontsize=_SMALL)


def layers_figure(run: Result, width: float | None = None) -> Figure:
    """Stacked bars: heads of each layer by their primary type."""
    width = width or 7.0
    figure = _figure(run, width, 0.4 * width + 0.5)
    axes = figure.axes[0]
    sizes = run.heads.groupby(["layer", "primary"]).size()
    counts = sizes.unstack(fill_value=0)
    # types in the order of the legend, one upon the other
    below = np.zeros(len(counts))
    for name in _types(run):
        if name in counts:
            axes.bar(counts.index, counts[name], bottom=below, width=0.85, **_face(name))
            below += counts[name].to_numpy()
    axes.set_xlabel("layer", fontsize=_SMALL)
    axes.set_ylabel("heads", fontsize=_SMALL)
    return figure


def relations_figure(run: Result, width: float | None = None, *, most: int = 30) -> Figure:
    """The best head of each relation: mass, control (a line) and the interval of the lift."""
    table = run.evidence[run.evidence["n"] >= MIN_QUERIES]
    best = best_heads(table).head(most)
    best = best.iloc[::-1].reset_index(drop=True)  # bars are drawn from below
    figure = _figure(run, width or 7.5, 0.8 + 0.18 * len(best))
    axes = figure.axes[0]
    # bars of mass, with the interval of the lift around their ends
    rows = np.arange(len(best))
    colours = [colour(name) for name in best["type"]]
    axes.barh(rows, best["mass"], color=colours, height=0.7)
    below = (best["lift"] - best["ci_low"]).clip(lower=0)
    above = (best["ci_high"] - best["lift"]).clip(lower=0)
    axes.errorbar(best["mass"], rows, xerr=[below, above], fmt="none", ecolor="black", lw=1)
    axes.plot(best["control"], rows, "k|", markersize=7)
    # the name of the head stands beside its relation, because each relation has another best head
    names = []
    for row in best.itertuples():
        head = head_name(row.layer, row.head)
        names.append(f"{row.type}/{row.relation}  {head}")
    axes.set_yticks(rows, names, fontsize=_SMALL)
    axes.set_xlim(0, 1)
    axes.set_xlabel("mass (line: control)", fontsize=_SMALL)
    return figure


def _figure(run: Result, width: float, height: float, *, has_letters: bool = False) -> Figure:
    """Axes of this size in inches below the model's name, with a legend of the types below.

    Functions come first in the legend, then attention sinks, then no type. With `has_letters` each
    type stands after its letter.
    """
    letters = int(width * _POINTS / (_LETTER * _SMALL))
    title = fill(short_title(run.name), max(8, letters))
    # the legend takes as many lines as its entries need
    handles = []
    for name in _types(run):
        label = f"{letter(name)} {name}" if has_letters else name
        handles.append(Patch(**_face(name), label=label))
    columns = max(1, int(width / _ENTRY))
    title_lines = title.count("\n") + 1
    legend_lines = ceil(len(handles) / columns)
    full_height = height + _LINE * (title_lines + legend_lines)
    figure = Figure(figsize=(width, full_height), layout="constrained")
    axes = figure.subplots()
    # title and legend stand outside the axes, so that cells keep their size whatever the names
    figure.suptitle(title, fontsize=_SMALL)
    axes.tick_params(labelsize=_SMALL)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        fontsize=_SMALL,
        frameon=False,
        columnspacing=1.0,
        handlelength=1.3,
        labelspacing=0.3,
    )
    return figure


def pattern_figure(view: AttentionView) -> Figure:
    """A head's pattern on a text as a heat map."""
    size = len(view.tokens)
    if size > MOST_TOKENS:
        raise PatternError(
            f"{view.title}: {size:,} tokens; a picture shows {MOST_TOKENS} at most (HTML shows all)"
        )
    figure = Figure(figsize=(2 + 0.24 * size, 1.6 + 0.24 * size), layout="constrained")
    axes = figure.subplots()
    # cells that a causal query cannot see stay white, and are not drawn as attention of 0
    pattern = np.ma.array(view.pattern)
    if not view.sees_future:
        is_later = np.triu(np.ones((size, size), bool), 1)
        pattern = np.ma.array(view.pattern, mask=is_later)
    axes.imshow(pattern, cmap="Blues", vmin=0, vmax=1)
    # `$` would start a formula
    names = [visible(token).replace("$", r"\$") for token in view.tokens]
    axes.set_xticks(range(size), names, rotation=90, fontsize=7)
    axes.set_yticks(range(size), names, fontsize=7)
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    axes.set_title(view.title, fontsize=9)
    return figure


def heads_figure(view: HeadsView) -> Figure:
    """Patterns of several heads as small heat maps, a row per layer."""
    # the heads of each layer, in their order
    rows: dict[int, list[int]] = {}
    for number, (layer, _) in enumerate(view.heads):
        rows.setdefault(layer, []).append(number)
    columns = max(len(indices) for indices in rows.values())
    side = 0.9
    size = (0.2 + side * columns, 0.5 + side * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for row, indices in enumerate(rows.values()):
        for column, index in enumerate(indices):
            axes = grid[row, column]
            # roots, so that weak attention is seen in a small picture
            picture = np.sqrt(view.patterns[index].astype(np.float32))
            axes.imshow(picture, cmap="Blues", vmin=0, vmax=1)
            axes.set_title(view.names[index], fontsize=7, pad=2)
    figure.suptitle(short_title(view.title), fontsize=_SMALL)
    return figure


FIGURES: dict[str, Callable[[Result, float | None], Figure]] = {
    "atlas": atlas_figure,
    "layers": layers_figure,
    "relations": relations_figure,
}


def _types(run: Result) -> list[str]:
    """Types of the run in the order of the legend; `unclassified` is always one."""
    primaries = set(run.heads["primary"])
    untyped = [name for name in NO_TYPE if name in primaries or name == UNCLASSIFIED]
    groups = legend_groups([*run.evidence["type"].unique(), *untyped])
    return [name for names in groups.values() for name in names]


def short_title(model: str) -> str:
    """A model's name without its folders; `$` would start a formula of matplotlib."""
    return model.rstrip("/").rsplit("/", 1)[-1].replace("$", r"\$")


def _face(name: str) -> dict[str, Any]:
    """The fill of a type in bars and legends: an attention sink is pale, no answer is hatched."""
    share = colour_share(name, 0.0) if is_sink_type(name) else 1.0
    face = tuple(_shade(name, share))
    hatch = "////" if name == UNIDENTIFIABLE else None
    return {"facecolor": face, "edgecolor": "grey", "linewidth": 0.3, "hatch": hatch}
