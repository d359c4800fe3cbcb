"""One head on one text, as circuitsvis HTML, as a picture, or as a shaded grid in a terminal.

And all heads of a layer side by side, on the text that the run kept of each.

In a notebook patterns are small pictures without any script, and circuitsvis in their place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from itertools import count
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from rich.console import Group, RenderableType
from rich.style import Style
from rich.text import Text

from headscope.errors import PatternError, RunError
from headscope.heads import head_name
from headscope.printing import one_line, visible
from headscope.statistics.result import Result, layers_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_SHADES = " ·░▒▓█"
_LEGEND = "a row per query, a column per key: the darker, the more attention; last, its largest"


@dataclass(frozen=True, eq=False, repr=False)
class AttentionView:
    """A pattern with its tokens. In a notebook it draws itself, without any network.

    Raises:
        PatternError: the pattern is not square over its tokens.
    """

    title: str
    tokens: tuple[str, ...]
    pattern: Float[ndarray, "query key"]
    """Attention in [0, 1]; rows sum to 1, over keys at or before the query but in encoders."""

    def __post_init__(self) -> None:
        size = len(self.tokens)
        if np.shape(self.pattern) != (size, size):
            raise PatternError(
                f"{self.title}: a pattern of shape {np.shape(self.pattern)} for {size} tokens"
            )

    def __repr__(self) -> str:
        return f"<{self.title}: attention of {len(self.tokens)} tokens; print() draws it>"

    def __str__(self) -> str:
        """The grid without colours."""
        from rich.console import Console

        console = Console(no_color=True, width=10_000, file=StringIO())
        with console.capture() as capture:
            console.print(self.grid())
        return capture.get()

    @property
    def sees_future(self) -> bool:
        """True if some query looks at keys after it, as in an encoder."""
        return bool(np.triu(self.pattern, 1).any())

    def html(self) -> str:
        """A whole page that asks no network."""
        return page_html(self.title, self.tokens, self.pattern[None], [self.title])

    def _repr_html_(self) -> str:
        """A picture, and the circuitsvis view where its script is in the notebook."""
        return notebook_html(self.title, self.tokens, self.pattern[None], [self.title])

    def figure(self) -> Figure:
        """A matplotlib figure of the pattern."""
        from headscope.views.figures import pattern_figure

        return pattern_figure(self)

    def grid(self) -> RenderableType:
        """The pattern as shaded blocks, a row per query; for a terminal, colours or not."""
        names = [visible(token) for token in self.tokens]
        width = max(map(len, names))
        lines = [Text(one_line(self.title), style="bold")]
        for query, name in enumerate(names):
            line = Text(f"{name:>{width}} ")
            keys = len(names) if self.sees_future else query + 1
            seen = self.pattern[query, :keys]
            for share in seen:
                mark = _SHADES[min(int(share * len(_SHADES) + 0.5), len(_SHADES) - 1)]
                line.append(mark * 2, Style(color="blue"))
            best = int(seen.argmax())
            line.append(f" {names[best]} {self.pattern[query, best]:.2f}", Style(dim=True))
            lines.append(line)
        lines.append(Text(_LEGEND, style="dim"))
        return Group(*lines)


@dataclass(frozen=True, eq=False)
class LayerView:
    """Patterns of a layer's heads on one text. In a notebook it draws itself without a network."""

    title: str
    tokens: tuple[str, ...]
    names: tuple[str, ...]
    """Of the heads."""
    patterns: Float[ndarray, "head query key"]
    """Attention in [0, 1]; of a text that goes on no row lacks anything in a causal model."""

    def html(self) -> str:
        """A whole page that asks no network."""
        return page_html(self.title, self.tokens, self.patterns, self.names)

    def _repr_html_(self) -> str:
        """Pictures, and the circuitsvis view where its script is in the notebook."""
        return notebook_html(self.title, self.tokens, self.patterns, self.names)


def layer_view(run: Result, layer: int) -> LayerView:
    """The heads of a layer on the ordinary text that the run kept; no model is loaded.

    Args:
        run: a run that kept examples.
        layer: its number in the model.

    Raises:
        RunError: no such layer, or no ordinary text was kept of its heads.
    """
    if layer not in layers_of(run):
        raise RunError(f"no layer {layer} in this run; they go up to {layers_of(run)[-1]}")
    examples = [example for example in run.examples if example.layer == layer and example.query < 0]
    examples = [example for example in examples if example.window == examples[0].window]
    if not examples:
        raise RunError(
            f"this run kept no text of layer {layer}: classify again, with examples, or name a "
            "head and a text"
        )
    names = tuple(head_name(example.layer, example.head) for example in examples)
    patterns = np.stack([example.pattern.astype(np.float32) for example in examples])
    return LayerView(f"{run.name} layer {layer}", examples[0].tokens, names, patterns)


_numbers = count()
_brought = False
"""Whether a view of this process brought the library along: one output of a notebook does."""
LEAST = 0.02
"""Attention that a small picture draws; what is less cannot be seen."""


def page_html(
    title: str,
    tokens: Sequence[str],
    patterns: Float[ndarray, "head query key"],
    names: Sequence[str],
) -> str:
    """Heads on one text as a whole page that asks no network."""
    heading = escape(title)
    head = f"<!doctype html><meta charset=utf-8><title>{heading}</title><h1>{heading}</h1>"
    return head + whole_html(title, tokens, patterns, names)


def notebook_html(
    title: str,
    tokens: Sequence[str],
    patterns: Float[ndarray, "head query key"],
    names: Sequence[str],
) -> str:
    """Heads on one text, for a notebook: pictures, which circuitsvis replaces where it is.

    The first view of a process brings the library, which is 1.3 MB; the others use what is in the
    page already, and stay pictures where it is not, as when that output was cleared.

    Args:
        title: what is shown.
        tokens: of the text.
        patterns: attention in [0, 1].
        names: of the heads.
    """
    global _brought
    page, _brought = whole_html(title, tokens, patterns, names, library=not _brought), True
    return page


def whole_html(
    title: str,
    tokens: Sequence[str],
    patterns: Float[ndarray, "head query key"],
    names: Sequence[str],
    *,
    library: bool = True,
) -> str:
    """The same, with the library or without it."""
    from headscope.views.report import circuitsvis_script
    from headscope.views.report.data import to_json

    # a checksum, so that the same text gives the same page, and a number for a second showing
    text = repr((title, tuple(tokens))).encode("utf-8", "backslashreplace")
    element_id = json.dumps(f"headscope-view-{crc32(text)}-{next(_numbers)}")
    props = {
        "tokens": [visible(token) for token in tokens],
        "attention": np.asarray(patterns, float).round(4).tolist(),
        "attentionHeadNames": list(names),
        "maskUpperTri": not bool(np.triu(patterns, 1).any()),
    }
    pictures = "".join(
        f'<figure style="display:inline-block;margin:4px">{_picture(tokens, pattern)}'
        f"<figcaption>{escape(name)}</figcaption></figure>"
        for name, pattern in zip(names, patterns, strict=True)
    )
    return (
        f"<div id={element_id}>{pictures}</div>"
        f"<script>{circuitsvis_script() if library else ''};"
        f"if (window.CircuitsVis) {{ const view = document.getElementById({element_id});"
        'view.replaceChildren(); view.style.cssText = "background:#fff;color:#1b1b1f";'
        f"CircuitsVis.render({element_id},CircuitsVis.AttentionHeads,{to_json(props)}) }}"
        "</script>"
    )


def _picture(tokens: Sequence[str], pattern: Float[ndarray, "query key"]) -> str:
    """Queries downward, keys to the right; a cell says its tokens when it is pointed at."""
    names = [escape(visible(token)) for token in tokens]
    seen = np.argwhere(pattern >= LEAST).tolist()
    shares = ((query, key, f"{pattern[query, key]:.2f}") for query, key in seen)
    cells = "".join(
        f'<rect x="{key}" y="{query}" width="1" height="1" fill-opacity="{share}">'
        f"<title>{names[query]} → {names[key]} {share}</title></rect>"
        for query, key, share in shares
    )
    size = len(names)
    # a middle blue is seen on light pages and on dark ones
    return (
        f'<svg viewBox="0 0 {size} {size}" width="{min(320, 60 + 8 * size)}" fill="#3b82c4" '
        f'role="img" style="background:#8882">{cells}</svg>'
    )
