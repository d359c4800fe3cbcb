"""Several heads on a text as small multiples; a click opens one of them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from html import escape
from itertools import count
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.heads import head_name
from headscope.packages import optional_package
from headscope.printing import visible
from headscope.runs.patterns import lower_triangle
from headscope.views.html_page import page_file
from headscope.views.report.data import to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = 255
"""Steps of attention in the page, from 0 to 1: a byte a cell."""
_numbers = count()


@dataclass(frozen=True, eq=False, repr=False)
class HeadsView:
    """Patterns of several heads on one text. In a notebook it draws itself without a network."""

    title: str
    tokens: tuple[str, ...]
    heads: tuple[tuple[int, int], ...]
    """Layer and number of each head."""
    patterns: Float[ndarray, "head query key"]
    """Attention in [0, 1]; rows sum to 1, over keys at or before the query but in encoders."""
    notes: tuple[str, ...] = ()
    """A note on the special tokens in the text, if there are any."""

    @property
    def names(self) -> list[str]:
        """Name of each head."""
        return [head_name(layer, head) for layer, head in self.heads]

    @property
    def sees_future(self) -> bool:
        """True if some query looks at keys after it, as in an encoder."""
        return bool(np.triu(self.patterns, 1).any())

    def html(self) -> str:
        """A whole page without network requests."""
        heading = escape(self.title)
        style = "<style>body{font:14px system-ui,sans-serif;margin:12px}</style>"
        head = f"<!doctype html><meta charset=utf-8><title>{heading}</title>{style}"
        return f"{head}<h1>{heading}</h1>{self._view()}"

    def _repr_html_(self) -> str:
        return f"<b>{escape(self.title)}</b>{self._view()}"

    def _view(self) -> str:
        # a checksum, so that the same text gives the same page, and a number for a second showing
        text = repr((self.title, self.tokens))
        checksum = crc32(text.encode("utf-8", "backslashreplace"))
        element_id = json.dumps(f"headscope-heads-{checksum}-{next(_numbers)}")
        script = page_file("headscope.views", "heads_view.js")
        script = script.replace("__ID__", element_id)
        script = script.replace("__DATA__", to_json(self._data()))
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        heads = f"<div id={element_id}>{len(self.heads)} heads</div>"
        return f"{heads}{notes}<script>{script}</script>"

    def _data(self) -> dict[str, Any]:
        sees_future = self.sees_future
        size = len(self.tokens)
        # a causal pattern is 0 above its diagonal, which halves the page
        cells = np.ones((size, size), bool) if sees_future else lower_triangle(size)
        heads = []
        for (layer, head), pattern in zip(self.heads, self.patterns, strict=True):
            levels = np.rint(pattern[cells].astype(np.float64) * LEVELS).astype(np.uint8)
            packed = base64.b64encode(levels.tobytes()).decode("ascii")
            heads.append({"name": head_name(layer, head), "layer": layer, "levels": packed})
        return {
            "tokens": [visible(token) for token in self.tokens],
            "whole": sees_future,
            "heads": heads,
        }

    def figure(self) -> Figure:
        """A matplotlib figure with a small picture per head, a row per layer.

        Raises:
            HeadscopeError: matplotlib is not installed.
        """
        optional_package("a figure", "matplotlib")
        from headscope.views.figures import heads_figure

        return heads_figure(self)

    def __repr__(self) -> str:
        return f"<{self.title}: attention of {len(self.tokens):,} tokens; html() is a page>"
