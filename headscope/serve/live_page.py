"""The live page: the report's look and parts, with what is known of the heads without any text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment

from headscope.relations import head_types
from headscope.runs.recorded_paths import name_of
from headscope.serve.live import Live
from headscope.statistics.tags import UNCLASSIFIED
from headscope.views.html_page import REPORT, page_file, page_style
from headscope.views.report.data import page_data, to_json

SERVE = "headscope.serve"
DRAWING = {
    "core.js": REPORT,
    "thumbs.js": REPORT,
    "save.js": REPORT,
    "arcs.js": REPORT,
    "head.js": REPORT,
    "small.js": SERVE,
    "pattern.js": SERVE,
}
"""Scripts that draw heads, in order, each with where it lies."""
SCRIPTS = {
    "page.js": SERVE,
    **DRAWING,
    "asking.js": SERVE,
    "ablate.js": SERVE,
    "start.js": SERVE,
}
"""The page's scripts in order, each with where it lies."""
WIDGET_SCRIPTS = {"widget_page.js": SERVE} | DRAWING | {"widget.js": SERVE}
"""The scripts of a notebook's widget in order: the page's, in a place of their own."""
PAGE_KEYS = ("model", "layers", "heads", "rows", "types", "countable", "relations", "strongest")
"""The report's data that the live page takes: nothing of the run's own text."""


def page_html(live: Live, other: Live | None = None) -> str:
    """The page as HTML; it asks nobody but the server that it came from."""
    data = live_data(live, other)
    template = Environment(autoescape=True).from_string(page_file(SERVE, "page.html"))
    return template.render(
        title=f"{' and '.join(data['names'])}, live – headscope",
        scripts=list(SCRIPTS),
        data=to_json(data),
    )


def widget_module() -> str:
    """The widget as an ES module without network requests: the live page's scripts in one
    function.
    """
    style = page_style(page_file(SERVE, "live.css"), page_file(SERVE, "widget.css"))
    scripts = "\n".join(page_file(package, name) for name, package in WIDGET_SCRIPTS.items())
    return (
        f"const STYLE = {json.dumps(style)};\n"
        # scripts that say "use strict" stand in no function that takes its argument apart
        f"function render(view) {{\nconst traits = view.model, home = view.el;\n{scripts}}}\n"
        "export default { render };\n"
    )


def live_data(live: Live, other: Live | None = None) -> dict[str, Any]:
    """Data of the heads without any text, for the scripts."""
    models = [served.model for served in (live, other) if served is not None]
    names = model_titles([(model.name, model.revision) for model in models])
    return _data(live) | {"names": names, "most_tokens": live.most}


def model_titles(models: Sequence[tuple[str, str]]) -> list[str]:
    """Names of the models on the page; equal names are followed by the revision, or a number.

    Args:
        models: name and revision of each; the latter is empty for a model without one.

    >>> model_titles([("mini", ""), ("/models/tiny", "")])
    ['mini', 'tiny']
    >>> model_titles([("gpt2", ""), ("gpt2", "")])
    ['gpt2 (first)', 'gpt2 (second)']
    """
    names = [name_of(name) for name, _ in models]
    if len(set(names)) == len(names):
        return names
    endings = [revision[:8] for _, revision in models]
    if "" in endings or endings[0] == endings[1]:
        endings = ["first", "second"]
    return [f"{name} ({ending})" for name, ending in zip(names, endings, strict=True)]


@cache
def asset(name: str) -> tuple[str, str] | None:
    """A script's or style sheet's text and kind, or None."""
    if name == "style.css":
        return page_style(page_file(SERVE, "live.css")), "text/css"
    if name in SCRIPTS:
        return page_file(SCRIPTS[name], name), "text/javascript"
    return None


def _data(live: Live) -> dict[str, Any]:
    """The part of the report's data that the page shows; of a model without a run its shape."""
    no_text: dict[str, Any] = {
        "means": None,
        "examples": [],
        "ladders": [],
        "info": {},
        "has_run": live.run is not None,
    }
    if live.run is not None:
        data = page_data(live.run)
        return {name: data[name] for name in PAGE_KEYS} | no_text
    model = live.model
    blank = {"primary": UNCLASSIFIED, "tags": "", "relation": ""}
    rows = [
        {"layer": layer, "head": head, "lift": 0.0, "reason": "", "undecided": None, **blank}
        for layer in model.attention_layers
        for head in range(model.heads)
    ]
    return no_text | {
        "model": {"name": name_of(model.name), "layers": model.layers + len(model.others)},
        "layers": list(model.attention_layers),
        "heads": model.heads,
        "rows": rows,
        "types": [
            {"name": t.name, "letter": t.letter, "sink": not t.functional}
            for t in head_types().values()
            if not t.on_request
        ],
        "countable": [],
        "relations": [],
        "strongest": {},
    }
