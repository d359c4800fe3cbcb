"""The visual report: template, style, scripts and data put together into one HTML file.

The file makes no network requests.
"""

from __future__ import annotations

import base64
import zlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment

from headscope.runs.recorded_paths import name_of
from headscope.statistics.result import Result
from headscope.views.html_page import REPORT, page_file, page_style
from headscope.views.report.data import page_data, to_json

SCRIPTS = (
    "page.js",
    "core.js",
    "thumbs.js",
    "save.js",
    "atlas.js",
    "arcs.js",
    "examples.js",
    "head.js",
    "scatter.js",
    "types.js",
    "start.js",
)

LEVEL = 5
"""Level of zlib: a ninth of the highest one's time, for a page 4 per cent larger."""


def report_html(run: Result, *, light: bool = False, home: str | None = None) -> str:
    """The visual report of a run as one HTML page without network requests.

    Args:
        run: the run.
        light: leave circuitsvis out, which is a third of a megabyte and asks the browser for
            `unsafe-eval`; the page's own views of patterns stay.
        home: the address of a page of all runs, to which this one leads back.
    """
    template = Environment(autoescape=True).from_string(page_file(REPORT, "page.html"))
    return template.render(
        title=f"{name_of(run.name)} – headscope",
        style=page_style(),
        circuitsvis="" if light else _packed_circuitsvis(),
        home=home,
        preliminary=run.preliminary,
        scripts="\n".join(page_file(REPORT, name) for name in SCRIPTS),
        data=packed(to_json(page_data(run))),
    )


@cache
def circuitsvis_script() -> str:
    """The script of circuitsvis, fit to stand inside a script element.

    circuitsvis' own `render` asks the network first; its package holds the script. It is read as a
    file: importing the package would import torch.
    """
    package: Any = find_spec("circuitsvis")
    path = Path(package.origin).parent / "dist" / "cdn" / "iife.js"
    script = path.read_text(encoding="utf-8")
    # one string in it would end the element, and its source map is not here
    return script.replace("</script", "<\\/script").split("//# sourceMappingURL")[0]


@cache
def _packed_circuitsvis() -> str:
    return packed(circuitsvis_script())


def packed(text: str) -> str:
    """A deflated text (zlib, RFC 1950) in base64; `page.js` reads it."""
    return base64.b64encode(zlib.compress(text.encode("utf-8"), LEVEL)).decode("ascii")
