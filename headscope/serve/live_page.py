"""The live page: the report's look and parts, with what is known of the heads without any text."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jinja2 import Environment

from headscope.relations import head_types
from headscope.runs.recorded_paths import name_of
from headscope.serve.guard import TOKEN
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
PAGE_KEYS = (
    *("model", "layers", "heads", "rows", "types", "countable", "relations", "strongest"),
    "cautions",
)
"""The report's data that the live page takes: nothing of the run's own text."""


def page_html(live: Live, token: str) -> str:
    """The page as HTML, whose requests go to its own server and state its token."""
    data = live_data(live)
    template = Environment(autoescape=True).from_string(page_file(SERVE, "page.html"))
    return template.render(
        title=f"{data['name']}, live – headscope",
        scripts=list(SCRIPTS),
        query=f"{TOKEN}={token}",
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


@cache
def asset(name: str) -> tuple[str, str] | None:
    """A script's or style sheet's text and kind, or None."""
    if name == "style.css":
        return page_style(page_file(SERVE, "live.css")), "text/css"
    if name in SCRIPTS:
        return page_file(SCRIPTS[name], name), "text/javascript"
    return None


def live_data(live: Live) -> dict[str, Any]:
    """The report's data without any text, for the scripts; of a model without a run its shape."""
    # the page shows sentences of its user, and none of the text of the run
    no_text: dict[str, Any] = {
        "name": name_of(live.model.name),
        "means": None,
        "examples": [],
        "ladders": [],
        "info": {},
        "has_run": live.run is not None,
        "most_tokens": live.most,
    }
    # the tags of a run, without its texts
    if live.run is not None:
        data = page_data(live.run)
        return {name: data[name] for name in PAGE_KEYS} | no_text
    # without a run, a grid of heads that have no type
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
        "cautions": {},
    }
