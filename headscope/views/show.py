"""One head on a text: HTML, a picture, or a grid in a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field
from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.text import Text as RichText

from headscope.heads import head_name, parse_head
from headscope.models.engines.engine import stream_patterns
from headscope.models.generate import continue_window
from headscope.models.text_window import check_unicode, text_window
from headscope.options import Device, Head, NonNegative, Revision, Source, Text, checked
from headscope.printing import one_line, visible
from headscope.runs.resolve import ModelOrRun, model_of, run_named, the_model
from headscope.views.report import circuitsvis_script
from headscope.views.report.data import to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHADES = " ·░▒▓█"
_LEGEND = "rows: queries, columns: keys; darker: more attention; at the right: the strongest key"
LEAST = 0.02
"""Attention that a small picture draws; what is less cannot be seen."""
MARK = "▸"
"""Mark before the first generated token."""
_numbers = count()
_brought = False
"""True once a view of this process brought the library along: one output of a notebook does."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionView:
    """A head's pattern with its tokens. In a notebook it draws itself without a network."""

    title: str
    tokens: tuple[str, ...]
    pattern: Float[ndarray, "query key"]
    """Attention in [0, 1]; rows sum to 1, over keys at or before the query but in encoders."""

    def html(self) -> str:
        """A whole page without network requests."""
        heading = escape(self.title)
        head = f"<!doctype html><meta charset=utf-8><title>{heading}</title><h1>{heading}</h1>"
        return head + self._view(library=True)

    def _repr_html_(self) -> str:
        """A picture, which circuitsvis replaces where its script is in the notebook.

        The first view of a process brings the script, which is 1.3 MB. The others use what is in
        the page already, and stay pictures if that output was cleared.
        """
        global _brought
        page, _brought = self._view(library=not _brought), True
        return page

    def _view(self, *, library: bool) -> str:
        # a checksum, so that the same text gives the same page, and a number for a second showing
        text = repr((self.title, self.tokens)).encode("utf-8", "backslashreplace")
        element_id = json.dumps(f"headscope-view-{crc32(text)}-{next(_numbers)}")
        props = {
            "tokens": [visible(token) for token in self.tokens],
            "attention": [np.asarray(self.pattern, float).round(4).tolist()],
            "attentionHeadNames": [self.title],
            "maskUpperTri": not self.sees_future,
        }
        picture = (
            f'<figure style="display:inline-block;margin:4px">{_picture(self.tokens, self.pattern)}'
            f"<figcaption>{escape(self.title)}</figcaption></figure>"
        )
        return (
            f"<div id={element_id}>{picture}</div>"
            f"<script>{circuitsvis_script() if library else ''};"
            f"if (window.CircuitsVis) {{ const view = document.getElementById({element_id});"
            'view.replaceChildren(); view.style.cssText = "background:#fff;color:#1b1b1f";'
            f"CircuitsVis.render({element_id},CircuitsVis.AttentionHeads,{to_json(props)}) }}"
            "</script>"
        )

    def __repr__(self) -> str:
        return f"<{self.title}: attention of {len(self.tokens)} tokens; print() draws it>"

    def __str__(self) -> str:
        """The grid without colours."""
        console = Console(no_color=True, width=10_000, file=StringIO())
        with console.capture() as capture:
            console.print(self.grid())
        return capture.get()

    @property
    def sees_future(self) -> bool:
        """True if some query looks at keys after it, as in an encoder."""
        return bool(np.triu(self.pattern, 1).any())

    def figure(self) -> Figure:
        """A matplotlib figure of the pattern."""
        from headscope.views.figures import pattern_figure

        return pattern_figure(self)

    def grid(self) -> RenderableType:
        """The pattern as shaded blocks, a row per query; for a terminal, colours or not."""
        names = [visible(token) for token in self.tokens]
        width = max(map(len, names))
        lines = [RichText(one_line(self.title), style="bold")]
        for query, name in enumerate(names):
            line = RichText(f"{name:>{width}} ")
            keys = len(names) if self.sees_future else query + 1
            seen = self.pattern[query, :keys]
            for share in seen:
                mark = _SHADES[min(int(share * len(_SHADES) + 0.5), len(_SHADES) - 1)]
                line.append(mark * 2, Style(color="blue"))
            best = int(seen.argmax())
            line.append(f" {names[best]} {self.pattern[query, best]:.2f}", Style(dim=True))
            lines.append(line)
        lines.append(RichText(_LEGEND, style="dim"))
        return Group(*lines)


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


@checked
def show(
    model: ModelOrRun,
    head: Head,
    text: Text,
    *,
    generate: Annotated[
        NonNegative, Field(description="Tokens to generate greedily after the text.")
    ] = 0,
    source: Source = None,
    revision: Revision = None,
    device: Device = "auto",
) -> AttentionView:
    """The attention pattern of one head on a text.

    Raises:
        ModelError: the model cannot be loaded.
        RunError: it has no such head.
        HeadscopeError: the text is empty, or longer than the model's context, what is generated
            included.
    """
    parse_head(head)
    check_unicode(text)
    run = run_named(model, revision=revision)
    if run is not None:
        loaded = model_of(run, source=source, device=device)
    else:
        loaded = the_model(model, revision=revision, device=device)
    layer, number = parse_head(head)
    shown_name = head_name(layer, number)
    loaded.check_head(layer, number)
    window = text_window(loaded, text, generate)
    title, start = f"{Path(loaded.name).name} {shown_name}", len(window)
    if generate:
        window = continue_window(loaded, window, generate)
        title += f", {len(window) - start} tokens generated after {MARK}"
    strings = list(window.strings)
    if len(window) > start:
        strings[start] = MARK + strings[start]
    patterns: list[torch.Tensor] = []

    def take(at: int, pattern: torch.Tensor) -> None:
        if at == layer:
            patterns.append(pattern[0, number].float().cpu())

    ids = torch.from_numpy(window.tokens)[None].to(loaded.device)
    stream_patterns(loaded.engine, ids, take, layer + 1)
    return AttentionView(title, tuple(strings), patterns[0].numpy())
