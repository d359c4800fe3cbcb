"""Examples of a head as arcs from a query to the tokens that it looks at, as a picture."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import BoxStyle, FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from headscope.errors import RunError
from headscope.heads import head_name, parse_head
from headscope.measure.example import Example
from headscope.printing import visible
from headscope.statistics.result import Result
from headscope.views.colours import colour
from headscope.views.figures import figure_title
from headscope.views.report.relation_sentences import spoken

WIDTH = 6.9
_POINTS = 72
_SIZE, _ROW, _RISE = 7.0, 62.0, 32.0  # points: of tokens, of an example, of its highest arc
_LEAST_ARC = 0.02
_LONGEST = 14  # characters of a token, before it is cut
_GREY = "#9a9aa4"


@dataclass(frozen=True)
class _Item:
    """A token, or a stretch that is left out."""

    text: str
    token: int | None
    share: float
    """Of the query's attention."""


def arcs_figure(run: Result, head: str, *, width: float | None = None) -> Figure:
    """The best, a middling and the worst of a head's kept examples of its first relation.

    Framed is the query, underlined its targets; the thicker an arc, the more attention; `…` stands
    for tokens left out. As many neighbours are shown as the width takes.

    Args:
        run: a run that kept examples.
        head: its name.
        width: in inches.

    Raises:
        RunError: no such head, or no example of it with a query.
    """
    layer, number = parse_head(head)
    name = head_name(layer, number)
    if name not in run.heads.index:
        raise RunError(f"the run has no head {name}; its last is {run.heads.index[-1]}")
    head_examples = [
        e for e in run.examples if (e.layer, e.head) == (layer, number) and e.query >= 0
    ]
    if not head_examples:
        raise RunError(f"the run kept no examples of {name} that could be drawn")
    head_examples = sorted(
        (e for e in head_examples if e.relation == head_examples[0].relation), key=lambda e: -e.mass
    )
    spread_examples = [
        head_examples[i]
        for i in dict.fromkeys((0, len(head_examples) // 2, len(head_examples) - 1))
    ]
    wide = (width or WIDTH) * _POINTS
    relation = spoken(head_examples[0].relation, run.rules[head_examples[0].relation].meaning)
    model = figure_title(run).replace(r"\$", "$")
    bare = "" if run.heads.at[name, "tags"] else " (no tag)"
    title_lines = textwrap.wrap(f"{model} {name}{bare}: {relation}", int(wide / (0.62 * _SIZE)))
    high = len(spread_examples) * _ROW + len(title_lines) * 1.3 * _SIZE + 7
    figure = Figure(figsize=(wide / _POINTS, high / _POINTS))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, wide)
    axes.set_ylim(0, high)
    axes.text(4, high - 4, "\n".join(title_lines), fontsize=_SIZE, va="top", parse_math=False)
    for row, example in enumerate(reversed(spread_examples)):
        _draw(axes, example, row * _ROW + 8, wide)
    return figure


def _draw(axes: Axes, example: Example, base: float, wide: float) -> None:
    """One example: its tokens on a line, the arcs above it, its mass at the left."""
    items, size = _fitting(example, wide - 8)
    widths = np.array([_width(item.text, size) for item in items])
    middle = 4 + np.cumsum(widths) - widths / 2
    at = next(i for i, item in enumerate(items) if item.token == example.query)
    type_colour = colour(example.relation.partition("/")[0])
    reach = np.sqrt(np.abs(middle - middle[at]) / max(1.0, np.abs(middle - middle[at]).max()))
    for index, item in enumerate(items):
        item_left, wide = middle[index] - widths[index] / 2 + 1, widths[index] - 2
        aimed = item.token in example.targets
        if item.share >= _LEAST_ARC:
            ends = float(middle[at]), float(middle[index])
            height = 8 + (_RISE - 8) * float(reach[index])
            _arc(axes, ends, base + 11, height, item.share, type_colour if aimed else _GREY)
        ink = "#77777f" if item.token is None else "black"
        text = axes.text(middle[index], base + 2, item.text, parse_math=False, color=ink)
        text.set(fontsize=size, ha="center")
        if aimed:
            axes.add_patch(Rectangle((item_left, base - 1.2), wide, 1.4, color=type_colour, lw=0))
        if index == at:
            style = BoxStyle.Round(pad=0, rounding_size=1.5)
            corner = item_left, base - 0.5
            axes.add_patch(FancyBboxPatch(corner, wide, 10.5, boxstyle=style, fill=False, lw=0.8))
    axes.text(4, base + _RISE + 10, f"{example.mass:.2f}", fontsize=_SIZE, weight="bold")


def _arc(
    axes: Axes, ends: tuple[float, float], base: float, height: float, share: float, edge: str
) -> None:
    start, end = ends
    points = [(start, base), (start, base + height * 1.3), (end, base + height * 1.3), (end, base)]
    if start == end:
        points = [(start + dx, base + dy) for dx, dy in ((-4, 0), (-9, 14), (9, 14), (4, 0))]
    path = Path(points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    axes.add_patch(
        PathPatch(path, fill=False, ec=edge, lw=0.5 + 3.5 * share, alpha=0.35 + 0.65 * share)
    )


def _fitting(example: Example, wide: float) -> tuple[list[_Item], float]:
    """Items that fit into a width: fewer neighbours, then fewer keys, then smaller letters."""
    items: list[_Item] = []
    for neighbours, keys in ((3, 4), (2, 4), (1, 3), (0, 3), (0, 1), (0, 0)):
        items = _line(example, neighbours, keys)
        if sum(_width(item.text, _SIZE) for item in items) <= wide:
            return items, _SIZE
    return items, max(3.0, _SIZE * wide / sum(_width(item.text, _SIZE) for item in items))


def _line(example: Example, neighbours: int, keys: int) -> list[_Item]:
    """The tokens that a query has to do with, and stretches between them."""
    row = example.pattern[example.query].astype(float)
    strongest = [int(key) for key in np.argsort(-row)[:keys] if row[key] >= _LEAST_ARC]
    positions = {example.query, *example.targets, *strongest}
    near = {i + step for i in positions for step in range(-neighbours, neighbours + 1)} | {0}
    left_out = {
        position: share
        for (position, _, _), share in zip(
            example.gaps, example.left_out, strict=bool(example.gaps)
        )
    }
    items: list[_Item] = []
    for position in range(len(example.tokens)):
        missing = left_out.get(position, 0.0) + (0.0 if position in near else float(row[position]))
        if position in left_out or position not in near:
            folded = _Item(" … ", None, missing)
            if items and items[-1].token is None:
                folded = _Item(" … ", None, items.pop().share + missing)
            items.append(folded)
        if position in near:
            items.append(
                _Item(_printable(example.tokens[position]), position, float(row[position]))
            )
    return items


def _printable(token: str) -> str:
    text = visible(token)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _width(text: str, size: float) -> float:
    """Points that a token takes with the room around it."""
    outline = TextPath((0, 0), text.strip() or "n", 10, prop=_FONT)
    return float(outline.get_extents().width) * size / 10 + 0.75 * size


_FONT = FontProperties()
