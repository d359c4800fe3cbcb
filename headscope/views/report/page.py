"""The page: template, style, scripts and data put together into one self-contained file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment

from headscope.evidence.result import Result
from headscope.runs.shareable import name_of
from headscope.views.colours import type_style
from headscope.views.report.data import page_data, to_json

SCRIPTS = (
    "core.js",
    "views.js",
    "coverage.js",
    "atlas.js",
    "head.js",
    "scatter.js",
    "thresholds.js",
    "types.js",
    "start.js",
)


def report_html(run: Result) -> str:
    """The visual report of a run as one HTML page that asks no network."""
    template = Environment(autoescape=True).from_string(_file("page.html"))
    return template.render(
        title=f"{name_of(run.name)} – headscope",
        style=type_style() + "\n" + _file("report.css"),
        circuitsvis=circuitsvis_script(),
        scripts="\n".join(_file(name) for name in SCRIPTS),
        data=to_json(page_data(run)),
    )


@cache
def circuitsvis_script() -> str:
    """The script of circuitsvis, fit to stand inside a script element.

    circuitsvis' own `render` asks the network first; its package holds the script.
    """
    script = (files("circuitsvis") / "dist" / "cdn" / "iife.js").read_text(encoding="utf-8")
    # one string in it would end the element, and its source map is not here
    return script.replace("</script", "<\\/script").split("//# sourceMappingURL")[0]


@cache
def _file(name: str) -> str:
    return (files("headscope.views.report") / name).read_text(encoding="utf-8")
