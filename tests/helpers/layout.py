"""What goes over the sides of pages and figures, and a run with much to show."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import headscope as hs
from tests.browser import Page


def excess_width(page: Page) -> int:
    """Pixels by which a page is wider than its screen."""
    element = "document.documentElement"
    return int(page.read(f"{element}.scrollWidth - {element}.clientWidth"))


def outside(figure: Figure) -> float:
    """The largest distance, in inches, by which something goes over the page's sides."""
    FigureCanvasAgg(figure).draw()
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    return float(max(-box.x0, -box.y0, box.x1 - width, box.y1 - height))


def with_every_tag(run: hs.Run) -> hs.Run:
    """The run with all of its types as tags of L0H0, each with both cautions."""
    heads = run.heads.copy()
    types = ";".join(dict.fromkeys(run.evidence["type"]))
    heads.loc["L0H0", ["tags", "preliminary", "below_baseline"]] = types
    return replace(run, heads=heads)
